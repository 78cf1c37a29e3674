"""Planted faults, localized on the graph that the backend receives; in this process, so that they are cheap."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.check import planted_backends
from tests.check.held import Kept, kept_model
from tests.check.in_process import InProcess
from torchstone.check.child.graphs import subject_of_part
from torchstone.check.child.model import loaded_model
from torchstone.check.child.recording import keep
from torchstone.check.findings import Conclusion
from torchstone.check.localize import Search
from torchstone.check.record_values import wanted_values
from torchstone.check.runner import Runner
from torchstone.check.settings import Settings
from torchstone.record.check import Blame, Outcome, Standing

CHIP = Path(__file__).parents[2] / "docs/extend/add-a-backend.md"


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(functional.gelu(self.up(x)))


class Blocks(nn.Module):
    """Three identical blocks, and a loud one among them."""

    def __init__(self, loud: int | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        if loud is not None:
            with torch.no_grad():
                self.blocks[loud].get_parameter("up.bias").fill_(1000.0)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x) / 1000) * 1000
        return x


def searched(model: nn.Module, inputs: Any, backend: str, path: Path, **more: Any) -> tuple[Search, Kept]:
    torch.manual_seed(0)
    kept = kept_model(model.eval(), inputs, path)
    settings = Settings(backend=backend, exports_ir=False, **more)

    def record(rows: Sequence[int]) -> Mapping[str, str]:
        return keep(loaded_model(), wanted_values(kept.trace, rows, weights=False), kept.folder.values)["unwritten"]

    with Runner(InProcess(), kept.folder.journal) as runner:
        search = Search(kept.trace, kept.plan, kept.requests(settings), runner, settings, record)
        search.run()
    return search, kept


def planted(name: str) -> str:
    return f"{planted_backends.__file__}::{name}"


def found(search: Search) -> set[tuple[str, bool]]:
    return {(" + ".join(search.ops_of(cause)), cause.proven) for cause in search.causes}


@pytest.mark.parametrize(
    ("backend", "ops"),
    [
        ("BadLinear", {"aten.linear.default"}),
        ("BadAddAfterLinear", {"aten.linear.default + aten.add.Tensor"}),
        pytest.param(
            "BadTriple",
            {"aten.linear.default + aten.gelu.default + aten.linear.default"},
            marks=pytest.mark.heavy,
        ),
        ("BadGeluAndTanh", {"aten.gelu.default", "aten.tanh.default"}),
        ("RaisesAtTanh", {"aten.tanh.default"}),
    ],
)
def test_exactly_what_was_planted_is_found_and_proven(tmp_path: Path, backend: str, ops: set[str]) -> None:
    search, _ = searched(Blocks(), torch.randn(2, 3, 8), planted(backend), tmp_path)

    assert found(search) == {(name, True) for name in ops}
    assert search.top_passes
    assert search.graphs.kind == "dynamo"


def test_what_was_tried_is_said(tmp_path: Path) -> None:
    search, _ = searched(Block(), torch.randn(2, 3, 8), planted("BadAddAfterLinear"), tmp_path)

    (cause,) = search.causes
    assert cause.proof == (
        "alone on the backend, with everything else computed by eager: wrong",
        "computed by eager inside the model, everything else on the backend: passed",
    )


def test_a_fault_of_values_is_shown_where_those_values_are(tmp_path: Path) -> None:
    search, kept = searched(Blocks(loud=2), torch.randn(2, 3, 8), planted("BadLargeGelu"), tmp_path)

    conclusion = Conclusion(kept.trace, kept.plan, search, search.requests, None)
    (one,) = conclusion.weighted()
    blocks = next(module for module in conclusion.modules(()) if module.module_path == "blocks.0")
    assert (one.ops, one.proven, one.calls) == (("aten.gelu.default",), True, 1)
    assert [(state.path, state.standing, state.status) for state in blocks.occurrence_results] == [
        ("blocks.0", Standing.TESTED, "success"),
        ("blocks.1", Standing.TESTED, "success"),
        ("blocks.2", Standing.REFUTED, "failed"),
    ]
    assert blocks.status == "failed"


def test_identical_modules_are_assumed_to_fail_alike_and_all_are_run_when_asked(tmp_path: Path) -> None:
    for every, standing in ((False, Standing.ASSUMED), (True, Standing.TESTED)):
        search, kept = searched(
            Blocks(), torch.randn(2, 3, 8), planted("BadLinear"), tmp_path / str(every), every=every
        )

        modules = Conclusion(kept.trace, kept.plan, search, search.requests, None).modules(())
        blocks = next(module for module in modules if module.module_path == "blocks.0")
        assert [state.standing for state in blocks.occurrence_results] == [Standing.TESTED, standing, standing]
        assert {state.status for state in blocks.occurrence_results} == {"failed"}


class Positions(nn.Module):
    """Ops that take no tensor, and one that leaves memory unset."""

    def forward(self, x: Tensor) -> Tensor:
        unset = torch.empty_like(x).fill_(2.0)
        places = torch.arange(x.shape[-1], dtype=x.dtype)
        return torch.tanh(x * unset + places) + x.histc(bins=x.shape[-1])


def test_an_op_that_takes_no_tensor_is_found_too(tmp_path: Path) -> None:
    search, _ = searched(Positions(), torch.randn(2, 6), planted("BadArange"), tmp_path)

    assert found(search) == {("aten.arange.default", True)}


def test_four_refusals_of_one_compiler_are_all_found_and_proven(tmp_path: Path) -> None:
    """Three ops without a rule in one message, one of them without values; and an error behind these."""
    search, _ = searched(Positions(), torch.randn(2, 6), planted("LacksFour"), tmp_path)

    names = ("arange.default", "empty_like.default", "histc.default", "tanh.default")
    assert found(search) == {(f"aten.{name}", True) for name in names}
    assert search.top_passes


@pytest.mark.heavy
def test_a_limit_of_depth_holds_for_identical_modules_too(tmp_path: Path) -> None:
    search, _ = searched(Blocks(), torch.randn(2, 3, 8), planted("BadLinear"), tmp_path, max_depth=0)

    assert {search.units[name].module for name in search.results} == {"mod_000_root"}


def test_what_only_the_whole_shows_is_not_proven(tmp_path: Path) -> None:
    search, _ = searched(Blocks(), torch.randn(2, 3, 8), planted("WrongWhenLarge"), tmp_path)

    assert all(not cause.proven for cause in search.causes)
    assert search.top_passes is not True


def test_gradients_are_judged_when_asked_for(tmp_path: Path) -> None:
    inputs, backend = torch.randn(2, 3, 8), planted("BadGradientOfGelu")

    forward, _ = searched(Block(), inputs, backend, tmp_path / "forward")
    torch._dynamo.reset()
    both, _ = searched(Block(), inputs, backend, tmp_path / "both", backward=True)

    assert not forward.causes
    assert found(both) == {("aten.gelu.default", True)}
    (cause,) = both.causes
    assert cause.result.reason.startswith("gradients.input 0: relative error 0.5")


def test_right_gradients_pass(tmp_path: Path) -> None:
    search, _ = searched(Blocks(), torch.randn(2, 3, 8), "aot_eager", tmp_path, backward=True)

    assert not search.causes


def test_a_backend_that_writes_to_its_inputs_is_at_fault_itself(tmp_path: Path) -> None:
    search, _ = searched(Blocks(), torch.randn(2, 3, 8), planted("WritesToInputs"), tmp_path)

    assert {cause.blame for cause in search.causes} == {Blame.MODULE}
    assert {cause.result.reason for cause in search.causes} == {
        "the backend writes to its input 0.0, which eager leaves as it is"
    }
    assert all("it is how the backend treats its inputs" in cause.note for cause in search.causes)


class Spectrum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.rfft(x) * 2


def test_complex_numbers_at_the_boundary_are_not_the_fault_of_an_op(tmp_path: Path) -> None:
    search, _ = searched(Spectrum(), torch.randn(2, 8), planted("NoComplexOutputs"), tmp_path)

    (cause,) = search.causes
    assert (cause.blame, cause.proven) == (Blame.MODULE, False)
    assert "complex" in cause.note


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(functional.linear(x, self.weight, self.bias))
        return torch.tanh(y) + y


def test_the_op_that_a_backend_names_is_the_one_finding(tmp_path: Path) -> None:
    """The chip of the documentation has linear, relu and add; below the dispatcher it would see addmm, t and view."""
    example = re.search(r"```python\n(import torch\nfrom torch import fx.*?)```", CHIP.read_text(), re.DOTALL)
    assert example is not None
    file = tmp_path / "my_backend.py"
    file.write_text(example[1])

    search, _ = searched(Dense(), torch.randn(2, 3, 8), f"{file}::TinyChip", tmp_path / "out")

    assert found(search) == {("aten.tanh.default", True)}
    assert search.graphs.kind == "export"


class Breaks(nn.Module):
    """Dynamo cannot trace through the middle: two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), Block()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        torch._dynamo.graph_break()
        x.add_(1.0)
        return self.second(x)


def test_graphs_with_breaks_and_writes_in_place_are_localized(tmp_path: Path) -> None:
    search, _ = searched(Breaks(), torch.randn(2, 3, 8), planted("BadAddAfterLinear"), tmp_path)

    assert found(search) == {("aten.linear.default + aten.add.Tensor", True)}


# --- Results that do not repeat ---


def test_an_op_that_gives_other_values_in_every_call_is_said_to_vary(tmp_path: Path) -> None:
    search, _ = searched(Blocks(), (torch.randn(2, 8),), planted("Shaky"), tmp_path)

    assert found(search) == {("aten.gelu.default", True)}
    assert {cause.result.outcome for cause in search.causes} == {Outcome.VARIES}
    assert "the same call gives other values" in search.causes[0].result.reason


def test_an_op_that_is_wrong_from_the_second_call_on_is_found(tmp_path: Path) -> None:
    search, _ = searched(Blocks(), (torch.randn(2, 8),), planted("WrongWhenCalledAgain"), tmp_path)

    assert found(search) == {("aten.gelu.default", True)}
    assert {cause.result.outcome for cause in search.causes} == {Outcome.WRONG}
    assert search.causes[0].result.reason.startswith("right in the first call")


def test_a_model_that_another_process_computes_otherwise_varies_and_blames_no_op(tmp_path: Path) -> None:
    search, _ = searched(Blocks(), (torch.randn(2, 8),), planted("OtherWhenStartedAgain"), tmp_path)

    (cause,) = search.causes
    assert (cause.result.outcome, cause.places, cause.proven) == (Outcome.VARIES, (), False)
    assert "other processes" in cause.result.reason


class Counting(nn.Module):
    """Adds up what it sees: another call gives other values, by right."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.sum(0)
        return x + self.seen


def test_a_model_that_keeps_a_statistic_is_not_said_to_vary(tmp_path: Path) -> None:
    search, _ = searched(Counting(), (torch.randn(2, 8),), "aot_eager", tmp_path)

    assert not search.failed_units()


class RunningMean(nn.Module):
    """Writes to a buffer in every call, and reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.register_buffer("mean", torch.ones(8))

    def forward(self, x: Tensor) -> tuple[Tensor]:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return (x - self.mean,)


class GivesItsBuffer(RunningMean):
    def forward(self) -> tuple[Tensor]:  # type: ignore[override]
        return (self.mean.mul_(0.9),)


def test_every_run_of_a_part_begins_with_the_buffers_as_they_were() -> None:
    subject = subject_of_part(RunningMean(), (torch.randn(2, 8),))

    first, again = (subject.module(*subject.arguments()[0]) for _ in range(2))

    assert torch.equal(first[0], again[0])
    assert torch.equal(first[0], subject.expected["0"])


def test_what_is_expected_is_no_buffer_that_the_next_run_writes() -> None:
    subject = subject_of_part(GivesItsBuffer(), ())

    subject.arguments()

    assert torch.equal(subject.expected["0"], torch.full((8,), 0.9))
