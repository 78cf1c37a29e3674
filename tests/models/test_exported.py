from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from torch import nn

from torchstone.errors import UnreadableFileError
from torchstone.models.exported import load_exported
from torchstone.models.load_model import load


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 8), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x).sum(dim=-1)


@pytest.fixture
def program() -> torch.export.ExportedProgram:
    return torch.export.export(Net(), (torch.ones(2, 4),))


def test_an_exported_program_keeps_its_module_tree_and_inputs(
    tmp_path: Path, program: torch.export.ExportedProgram
) -> None:
    file = tmp_path / "net.pt2"
    torch.export.save(program, file)
    model, inputs = load_exported(file, seed=0)
    assert "block.0" in dict(model.named_modules())
    assert torch.equal(inputs.args[0], torch.ones(2, 4))
    assert torch.equal(model(*inputs.args), program.module()(torch.ones(2, 4)))


def test_a_program_without_example_inputs_gets_inputs_of_its_own_shapes(
    tmp_path: Path, program: torch.export.ExportedProgram
) -> None:
    program.example_inputs = None
    file = tmp_path / "net.pt2"
    torch.export.save(program, file)
    model, inputs = load_exported(file, seed=0)
    assert inputs.notes == ("x: float32[2, 4], from the program's own shapes",)
    assert model(*inputs.args).shape == (2,)
    assert torch.equal(inputs.args[0], load_exported(file, seed=0)[1].args[0])


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "net.pt2"
    file.write_bytes(b"not a program")
    with pytest.raises(UnreadableFileError, match=r"net\.pt2 is not a readable \.pt2 file") as raised:
        load_exported(file, seed=0)
    reason = str(raised.value).partition("(")[2].partition(")")[0]
    assert reason.endswith("not a ZIP archive"), "torch goes on with advice about checkpoints"


def test_a_long_reason_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "net.pt2"
    with ZipFile(file, "w") as archive:
        archive.writestr("a/b", "x")
    with pytest.raises(UnreadableFileError) as raised:
        load_exported(file, seed=0)
    assert "enhancement request" not in str(raised.value)
    assert len(str(raised.value)) < len(str(file)) + 220


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match=r"gone\.pt2 does not exist"):
        load(str(tmp_path / "gone.pt2"))
