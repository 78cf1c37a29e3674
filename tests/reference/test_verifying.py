from pathlib import Path

import msgspec
import pytest

from torchstone.errors import ModelError
from torchstone.models.load_model import load
from torchstone.record import codec
from torchstone.record.reference import GoldenData
from torchstone.reference.golden_files import save_golden
from torchstone.reference.make import Request, make_golden
from torchstone.reference.verify import verify

NET = """
import torch
from torch import nn

def load_model():
    {seed}
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

def get_inputs():
    return torch.linspace(-1, 1, 8).reshape(2, 4)
"""


def reference_of(tmp_path: Path, *, seed: str, with_weights: bool = False) -> Path:
    source = tmp_path / "net.py"
    source.write_text(NET.format(seed=seed))
    name = f"{source}::load_model"
    model, inputs = load(name, device="cpu")
    golden = make_golden(model, inputs, Request(model=name, watched=("0",)))
    save_golden(tmp_path / "ref", golden, weights_of=model if with_weights else None)
    return tmp_path / "ref"


def test_a_model_that_is_built_the_same_again_passes_bit_for_bit(tmp_path: Path) -> None:
    found = verify(reference_of(tmp_path, seed="torch.manual_seed(0)"))

    assert found.passed
    assert found.notes == ("4 of 4 tensors are equal bit for bit",)


def test_other_weights_fail_and_are_named_as_the_cause(tmp_path: Path) -> None:
    found = verify(reference_of(tmp_path, seed="torch.seed()"))

    assert not found.passed
    assert found.first_wrong == "modules/0/outputs"
    assert any("weights differ from the golden run" in note for note in found.notes)
    assert found.next_step == (
        "the outputs differ because the weights differ: make the reference again with --with-weights"
    )


def test_kept_weights_are_put_back(tmp_path: Path) -> None:
    assert verify(reference_of(tmp_path, seed="torch.seed()", with_weights=True)).passed


def test_a_model_that_moved_can_be_named(tmp_path: Path) -> None:
    folder = reference_of(tmp_path, seed="torch.manual_seed(0)")
    (tmp_path / "net.py").rename(tmp_path / "moved.py")

    assert verify(folder, model=f"{tmp_path / 'moved.py'}::load_model").passed


def test_a_reference_that_gives_something_else_each_time_is_told_by_verify_too(tmp_path: Path) -> None:
    source = tmp_path / "net.py"
    source.write_text(
        "import torch\ncount = iter(range(99))\nclass Net(torch.nn.Module):\n"
        "    def forward(self, x): return x + next(count)\ndef get_inputs(): return torch.ones(2, 3)\n"
    )
    name = f"{source}::Net"
    model, inputs = load(name, device="cpu")
    save_golden(tmp_path / "ref", make_golden(model, inputs, Request(model=name)))

    assert any("differs from run to run (outputs)" in note for note in verify(tmp_path / "ref").notes)


def test_a_model_that_is_gone_is_asked_for_by_the_name_it_had(tmp_path: Path) -> None:
    folder = reference_of(tmp_path, seed="torch.manual_seed(0)")
    (tmp_path / "net.py").unlink()

    with pytest.raises(ModelError, match=r"made from .*net\.py::load_model: give the new location with --model"):
        verify(folder)
    with pytest.raises(ModelError) as caught:
        verify(folder, model="gone.py::load")
    assert "--model" not in str(caught.value)


def test_code_that_changed_is_blamed_and_no_port(tmp_path: Path) -> None:
    folder = reference_of(tmp_path, seed="torch.manual_seed(0)")
    source = tmp_path / "net.py"

    source.write_text(source.read_text().replace("nn.ReLU()", "nn.Sigmoid()"))
    after_the_first = verify(folder)
    source.write_text(source.read_text().replace("nn.Linear(4, 8)", "nn.Sequential(nn.Identity(), nn.Linear(4, 8))"))
    renamed = verify(folder)

    assert (after_the_first.first_wrong, after_the_first.next_step.split(":")[0]) == (
        "outputs",
        "the model or its packages changed",
    )
    assert "the weights differ" in renamed.next_step


def test_inputs_that_moved_can_be_named(tmp_path: Path) -> None:
    folder = reference_of(tmp_path, seed="torch.manual_seed(0)")

    assert verify(folder, inputs=f"{tmp_path / 'net.py'}::get_inputs").passed


def test_another_version_is_told(tmp_path: Path) -> None:
    folder = reference_of(tmp_path, seed="torch.manual_seed(0)")
    data = codec.load(folder / "golden_data.json", GoldenData)
    old = msgspec.structs.replace(data, versions=data.versions | {"torch": "1.0", "transformers": "0.1"})
    codec.save(folder / "golden_data.json", old)

    notes = " ".join(verify(folder).notes)

    assert "made with torch 1.0, replayed with torch" in notes
    assert "made with transformers 0.1" in notes


@pytest.mark.parametrize("name", ["tiny:gpt2"])
def test_a_model_of_the_zoo_is_built_again_from_its_seed(name: str, tmp_path: Path) -> None:
    model, inputs = load(name, device="cpu")
    save_golden(tmp_path, make_golden(model, inputs, Request(model=name)))

    assert verify(tmp_path).passed
