import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.cli.references import write_net
from torchstone.errors import InputError
from torchstone.models.load_model import load
from torchstone.record.codec import save
from torchstone.workflows.model_source import ModelRequest, load_trace
from torchstone.workflows.reference import (
    COMPARISON_FILE,
    ReferenceRequest,
    compare_with_port,
    make_reference,
    verify_reference,
    write_reference,
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.head(self.first(x).relu())}


class Broken(Net):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.head(x[:, :3])}


def inputs() -> Tensor:
    return torch.linspace(-1, 1, 12).reshape(2, 6)


def test_a_module_in_memory_gets_a_complete_reference_with_its_weights(tmp_path: Path) -> None:
    made = make_reference(Net().eval(), inputs(), tmp_path / "golden", intermediates="all")

    assert made.complete
    assert made.golden is not None
    assert {"outputs/logits", "modules/head/outputs"} <= made.golden.tensors.keys()
    for name in ("golden_data.safetensors", "weights.safetensors", "graph.svg", "CHECKLIST.md", "report.html"):
        assert (tmp_path / "golden" / name).is_file()


def test_without_its_weights_a_module_in_memory_cannot_be_built_again(tmp_path: Path) -> None:
    made = make_reference(Net().eval(), inputs(), tmp_path, with_weights=False)

    failed = [check for box in made.checklist.boxes for check in box.checks if not check.passed]
    assert [check.detail for check in failed] == [
        "it was given in memory, so there is no source to build it from; keep its weights: with_weights=True"
    ]
    assert not made.complete


def test_a_module_in_memory_is_left_as_it_was(tmp_path: Path) -> None:
    model = Net().eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    make_reference(model, inputs(), tmp_path)

    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_model_that_fails_gives_its_failure_and_no_golden_data(tmp_path: Path) -> None:
    made = make_reference(Broken().eval(), inputs(), tmp_path)

    assert made.golden is None
    assert made.trace.failure is not None
    assert not any(box.ticked for box in made.checklist.boxes)
    assert not (tmp_path / "golden_data.json").exists()


def test_a_named_model_is_made_and_verified(tmp_path: Path) -> None:
    net = f"{write_net(tmp_path)}::load_model"

    made = make_reference(net, None, tmp_path / "golden")

    assert made.complete
    assert made.checklist.model == net
    assert verify_reference(tmp_path / "golden").passed


def test_a_module_in_memory_is_verified_with_its_weights_in_a_model_built_from_source(tmp_path: Path) -> None:
    net = write_net(tmp_path)
    model = load(f"{net}::load_model").model
    with torch.no_grad():
        model.get_parameter("head.weight").mul_(3)
    make_reference(model, inputs(), tmp_path / "golden")

    with pytest.raises(InputError, match="was made from a module in memory"):
        verify_reference(tmp_path / "golden")
    assert verify_reference(tmp_path / "golden", model=f"{net}::load_model").passed


def test_a_request_and_a_call_make_the_same_checklist(tmp_path: Path) -> None:
    net = f"{write_net(tmp_path)}::load_model"

    called = make_reference(net, None, tmp_path / "call")
    asked = write_reference(ReferenceRequest(model=ModelRequest(model=net), folder=tmp_path / "request"))

    assert called.checklist.boxes == asked.checklist.boxes


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tensor]:
    """A reference, and the right outputs."""
    folder = tmp_path_factory.mktemp("golden")
    made = make_reference(Net().eval(), inputs(), folder)
    assert made.golden is not None
    return folder, made.golden.tensors["outputs/logits"]


def test_a_port_is_compared_from_a_file_a_mapping_and_what_it_returned(
    golden: tuple[Path, Tensor], tmp_path: Path
) -> None:
    folder, logits = golden
    save_file({"logits": logits}, tmp_path / "port.safetensors")

    for outputs in (tmp_path / "port.safetensors", {"logits": logits}, {"outputs/logits": logits}, logits, [logits]):
        assert compare_with_port(str(folder), outputs).passed
    assert compare_with_port(folder, -logits).first_wrong == "outputs/logits"


def test_a_comparison_is_written_only_where_asked(golden: tuple[Path, Tensor]) -> None:
    folder, logits = golden

    compare_with_port(folder, logits)
    assert not (folder / COMPARISON_FILE).exists()
    compare_with_port(folder, logits, write=True)
    assert json.loads((folder / COMPARISON_FILE).read_bytes())["passed"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match="cannot write to"):
        make_reference(Net().eval(), inputs(), tmp_path / "file" / "golden")


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"mode": "meta"}, "needs real values, which --mode meta"), ({"backward": True}, "drop --backward")],
)
def test_what_a_reference_has_no_use_for_is_refused(changes: dict[str, object], words: str, tmp_path: Path) -> None:
    request = ModelRequest(model="tiny:bert", **changes)  # type: ignore[arg-type]

    with pytest.raises(InputError, match=words):
        write_reference(ReferenceRequest(model=request, folder=tmp_path))


def test_a_folder_with_a_capture_is_no_model(tmp_path: Path) -> None:
    save(tmp_path / "trace.json", load_trace(ModelRequest(model=f"{write_net(tmp_path)}::load_model")))

    with pytest.raises(InputError, match="which has no values"):
        make_reference(str(tmp_path), None, tmp_path / "out")
