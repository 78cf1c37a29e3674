"""Folders that differ in known ways, and what `diff` says about them."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.check.results import check_result, finding
from tests.cost.devices import device
from tests.report.folders import folder_of
from tests.report.sections.test_reference import GOLDEN
from tests.report.traces import empty_model, transformer
from torchstone.cli.main import run
from torchstone.cost import price
from torchstone.cost.roofline import predict
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.record.codec import load, save
from torchstone.record.diff import Change, FolderDiff
from torchstone.record.module import Module, ModuleCallTable
from torchstone.record.trace import Trace
from torchstone.workflows.diff import _modules, diff_folders

EMPTY = replace(empty_model(), recorded_calls=ModuleCallTable())


def folder(path: Path, trace: Trace, *, priced: bool = True) -> Path:
    path.mkdir()
    folder_of(trace, path)
    if priced:
        table = price(trace)
        save(path / "cost.json", msgspec.structs.replace(table, prediction=predict(trace, table, device())))
    return path


def changes(found: FolderDiff) -> dict[str, Change]:
    return {one.path: one.change for one in found.modules if one.change is not Change.SAME}


def quantity(found: FolderDiff, name: str) -> tuple[object, object]:
    one = next(one for one in found.quantities if one.name == name)
    return one.before, one.after


def test_a_folder_does_not_differ_from_its_copy(tmp_path: Path) -> None:
    first, second = folder(tmp_path / "a", transformer(2)), folder(tmp_path / "b", transformer(2))

    found = diff_folders(first, second)

    assert not found.differs
    assert found.compared == ("structure", "cost")
    assert {one.change for one in found.quantities} == {one.change for one in found.modules} == {Change.SAME}


def test_a_layer_more_is_added_where_it_stands_and_nothing_else_is_blamed(tmp_path: Path) -> None:
    first, second = folder(tmp_path / "a", transformer(2)), folder(tmp_path / "b", transformer(3))
    traces = [load(one / "trace.json", Trace) for one in (first, second)]

    found = diff_folders(first, second)
    back = diff_folders(second, first)

    new = {one.path for one in traces[1].modules} - {one.path for one in traces[0].modules}
    assert new
    assert {path for path, change in changes(found).items() if change is Change.ADDED} == new
    assert {path for path, change in changes(back).items() if change is Change.REMOVED} == new
    assert [one.path for one in found.modules] == [one.path for one in traces[1].modules]
    assert quantity(found, "op calls") == (len(traces[0].ops), len(traces[1].ops))
    assert quantity(found, "FLOPs") == tuple(price(one).totals.flops for one in traces)
    for one in found.ops:
        counts = tuple(sum(call.op == one.op for call in trace.ops) for trace in traces)
        assert one.calls == counts


def test_a_wider_model_changes_shapes_parameters_and_costs_of_every_layer(tmp_path: Path) -> None:
    first, second = folder(tmp_path / "a", transformer(1)), folder(tmp_path / "b", transformer(1, width=128))

    found = diff_folders(first, second)

    assert Change.ADDED not in changes(found).values()
    linear = next(one for one in found.modules if one.classes[0] and one.classes[0].endswith("Linear"))
    assert linear.shapes[0] != linear.shapes[1]
    assert linear.parameters[0] is not None
    assert linear.parameters[1] is not None
    assert linear.parameters[1] > linear.parameters[0]


@given(st.lists(st.integers(0, 12), unique=True), st.lists(st.integers(0, 12), unique=True))
def test_every_path_of_both_sides_is_there_once_whatever_moved(before: list[int], after: list[int]) -> None:
    """Layers that were removed, added and moved, in any combination."""

    def model(numbers: list[int]) -> Trace:
        return replace(EMPTY, modules=tuple(Module(path=f"layers.{number}", class_name="Layer") for number in numbers))

    found = list(_modules((model(before), model(after)), None))

    assert [one.path for one in found if one.change is not Change.REMOVED] == [f"layers.{one}" for one in after]
    removed = {one.path for one in found if one.change is Change.REMOVED}
    assert removed == {f"layers.{one}" for one in before if one not in after}
    assert len(found) == len(set(before) | set(after))


def test_what_only_one_side_has_is_said_and_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = folder(tmp_path / "a", transformer(1))
    second = folder(tmp_path / "b", transformer(1), priced=False)

    found = diff_folders(first, second)

    assert found.compared == ("structure",)
    assert found.notes == (f"only {first} has cost.json",)
    assert not found.differs
    assert run(["diff", str(first), str(tmp_path / "c")]) == EXIT_BAD_INPUT
    assert "is not a folder" in capsys.readouterr().err
    (tmp_path / "c").mkdir()
    assert run(["diff", str(first), str(tmp_path / "c")]) == EXIT_BAD_INPUT


def test_checks_are_compared_and_a_fixed_op_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = folder(tmp_path / "a", transformer(1)), folder(tmp_path / "b", transformer(1))
    save(first / "check.json", check_result(finding("aten.mm.default"), finding("aten.add.Tensor", id="finding_002")))
    save(second / "check.json", check_result(finding("aten.mm.default")))

    assert run(["diff", str(first), str(second), "--dir", str(tmp_path / "out")]) == EXIT_FINDINGS

    assert "fixed: aten.add.Tensor" in capsys.readouterr().out
    page = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert {"diff", "backends"} <= set(page["sections"])


def test_a_module_that_one_check_has_alone_did_not_end_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = folder(tmp_path / "a", transformer(1)), folder(tmp_path / "b", transformer(1))
    passed = check_result()
    save(first / "check.json", replace(passed, modules=passed.modules[:1]))
    save(second / "check.json", passed)

    run(["diff", str(first), str(second)])

    out = capsys.readouterr().out
    assert "1 unique module was checked on one side only" in out
    assert "ended otherwise" not in out


def test_golden_tensors_and_weights_that_differ_are_named(tmp_path: Path) -> None:
    weights = msgspec.structs.replace(GOLDEN.weights, hashes={"up": "1" * 64, "down": "2" * 64})
    before = msgspec.structs.replace(GOLDEN, weights=weights)
    first, *others = GOLDEN.tensors
    other_weights = msgspec.structs.replace(weights, hashes={"up": "1" * 64, "down": "3" * 64})
    wider = msgspec.structs.replace(first, shape=(*first.shape, 2))
    after = msgspec.structs.replace(GOLDEN, weights=other_weights, tensors=(wider, *others))
    for name, data in (("a", before), ("b", after)):
        (tmp_path / name).mkdir()
        save(tmp_path / name / "golden_data.json", data)

    found = diff_folders(tmp_path / "a", tmp_path / "b")

    assert {(one.kind, one.name, one.change) for one in found.tensors} == {
        ("golden", first.name, Change.CHANGED), ("weight", "down", Change.CHANGED),
    }  # fmt: skip
    assert found.compared == ("golden data",)


def reference(folder: Path, *, weight: float = 0.0, lower: float = 0.0, seed: int = 0) -> Path:
    """Golden data of a small net; `weight` is added to one weight, `lower` to one element of its output."""
    import torch

    from torchstone import make_reference

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.down(torch.relu(self.up(x)))
            return found - lower * (torch.arange(8) == 3)

    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        net.down.weight[3, 5] += weight
    torch.manual_seed(seed)
    make_reference(net, (torch.randn(4, 64),), folder, intermediates="all")
    return folder


@pytest.mark.torch
def test_values_of_golden_tensors_are_judged_in_multiples_of_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, same = reference(tmp_path / "a"), reference(tmp_path / "same")
    assert diff_folders(before, same).tensors == ()

    found = diff_folders(before, reference(tmp_path / "wrong", lower=0.5), tmp_path / "out")
    judged = {one.name: one for one in found.tensors}
    assert judged.keys() == {"outputs"}  # not the modules before it, which are the same
    assert (judged["outputs"].verdict, judged["outputs"].change) == ("wrong", Change.CHANGED)
    multiple = judged["outputs"].noise_multiple
    assert multiple is not None
    assert multiple > 100
    assert found.differs
    assert next(one for one in found.modules if one.path == "").tensors == 1
    assert json.loads((tmp_path / "out" / "diff.json").read_bytes())["tensors"][0]["noise_multiple"] == multiple
    assert run(["diff", str(before), str(tmp_path / "wrong")]) == EXIT_FINDINGS
    assert "times the noise; largest difference 0.5" in capsys.readouterr().out

    close = diff_folders(before, reference(tmp_path / "close", lower=1e-8))
    assert close.tensors == ()
    assert not close.differs
    assert any("different within noise: 1 golden tensor" in one for one in close.notes)

    other = diff_folders(before, reference(tmp_path / "other", seed=1))
    assert "the inputs differ, so the other golden tensors must differ, too" in other.notes
    assert {"inputs/x", "outputs"} <= {one.name for one in other.tensors}


@pytest.mark.torch
def test_values_that_cannot_be_compared_differ_by_their_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = reference(tmp_path / "a"), reference(tmp_path / "b", lower=0.5)
    with monkeypatch.context() as without_torch:
        without_torch.setattr("torchstone.workflows.diff.find_spec", lambda _: None)
        (found,) = diff_folders(before, after).tensors
    assert (found.name, found.verdict, found.noise_multiple) == ("golden_data.safetensors", "", None)
    assert "pip install" in found.detail
    (after / "golden_data.safetensors").unlink()
    (found,) = diff_folders(before, after).tensors
    assert f"{after} has no golden_data.safetensors" in found.detail


def test_the_command_prints_what_differs_and_can_say_it_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = folder(tmp_path / "a", transformer(2)), folder(tmp_path / "b", transformer(3))

    assert run(["diff", str(first), str(second)]) == EXIT_FINDINGS
    shown = capsys.readouterr().out
    assert "modules added" in shown
    assert "aten." in shown
    assert run(["diff", str(first), str(second), "--json"]) == EXIT_FINDINGS
    assert json.loads(capsys.readouterr().out)["schema"] == "torchstone/diff/1"
    assert run(["diff", str(first), str(first)]) == EXIT_FINE
    assert capsys.readouterr().out.startswith("no difference")
