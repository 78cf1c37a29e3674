"""Two versions of ttnn: what their signatures and verdicts say."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.backends.ttnn.environments import needs_ttnn, ttnn_environment
from tests.workflows.test_ttnn import CALLS, master
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.record.check import Outcome
from torchstone.record.ttnn_verdict import Difference, Judgements, VersionDiff
from torchstone.record.vector import SweepRun, VectorResult, status_of
from torchstone.report.ttnn_text import versions_text
from torchstone.sweep.run import was_not_judged
from torchstone.workflows.ttnn import _change, _differences

OLD = "(input: Tensor, dim: int, *, approximate: str = ..., memory_config: MemoryConfig | None = ...)"
NEW = "(input: Tensor, dim: int, fast: bool, *, memory_config: MemoryConfig | None = ...)"


def test_an_argument_that_is_gone_and_one_that_is_required_now_break_callers() -> None:
    found = _change("ttnn.gelu", [OLD], [NEW])

    assert found is not None
    assert (found.lost_arguments, found.now_required) == (("approximate",), ("fast",))
    assert (found.removed, found.added) == ((OLD,), (NEW,))


@pytest.mark.parametrize(
    ("before", "after", "lost", "required"),
    [
        ([OLD], [NEW, OLD], (), ()),  # another way to call it
        ([OLD, NEW], [NEW], ("approximate",), ("fast",)),
        (["(x: int = ...)"], ["(x: int)"], (), ("x",)),
        (["(x: int)"], ["(x: float)"], (), ()),
        ([], ["(x: int)"], (), ()),  # the older version does not say
        (["(x: int)"], [], (), ()),
    ],
)
def test_other_changes(before: list[str], after: list[str], lost: tuple[str, ...], required: tuple[str, ...]) -> None:
    found = _change("ttnn.op", before, after)

    assert found is not None
    assert (found.lost_arguments, found.now_required) == (lost, required)


def test_equal_signatures_are_no_change() -> None:
    assert _change("ttnn.op", [OLD], [OLD]) is None


def result(number: int, outcome: Outcome, **verdict: Any) -> VectorResult:
    status = status_of(outcome, expected_to_fail=False)
    return VectorResult(
        id=str(number), module="m", suite="s", op="ttnn.add", status=status, outcome=outcome, verdict=verdict or None
    )


def sweep(*results: VectorResult) -> SweepRun:
    return SweepRun(run="r", backend="ttnn", results=results)


def test_what_was_not_judged_is_no_difference_but_a_missing_op_is() -> None:
    before = sweep(*(result(number, Outcome.ACCEPTED) for number in range(4)))
    after = sweep(
        result(0, Outcome.ACCEPTED),
        result(1, Outcome.NOT_RUN),  # the kernel cache failed
        result(2, Outcome.NOT_RUN, cause="ttnn has no op ttnn.add"),
        result(3, Outcome.REFUSED, cause="no"),
    )

    found = _differences(before, after)
    assert [(one.id, one.after, one.cause) for one in found] == [
        ("3", "refused", "no"),
        ("2", "not run", "ttnn has no op ttnn.add"),
    ]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("InfrastructureError: cannot rename", True),
        ("torchstone.backends.ttnn.verdicts.InfrastructureError: cannot rename", True),
        ("RuntimeError: InfrastructureError", False),
        ("", False),
    ],
)
def test_a_failure_of_the_machinery_is_told_by_the_class_of_the_error(error: str, *, expected: bool) -> None:
    assert was_not_judged(error) is expected


def test_a_version_is_compatible_where_nothing_that_worked_breaks() -> None:
    better = Difference(id="1", op="ttnn.add", before="refused", after="accepted", cause="x")
    worse = Difference(id="1", op="ttnn.add", before="accepted", after="refused", cause="x")
    both: dict[str, Any] = {"before": "ttnn 1", "after": "ttnn 2", "ops": 3}

    assert VersionDiff(
        **both, added=("ttnn.new",), judgements=Judgements(runs=(), differences={"n": (better,)})
    ).is_compatible
    assert not VersionDiff(**both, judgements=Judgements(runs=(), differences={"n": (worse,)})).is_compatible
    assert not VersionDiff(**both, removed=("ttnn.old",)).is_compatible
    assert "1 removed" in versions_text(VersionDiff(**both, removed=("ttnn.old",)))


@pytest.mark.ttnn
@needs_ttnn
def test_an_environment_beside_itself_has_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = master(tmp_path / "master.json", {"ttnn.add": CALLS["ttnn.add"]})
    twice = ["--python", ttnn_environment(), "--python", ttnn_environment()]
    options = ["--device", "n150", "--dir", str(tmp_path / "sweep"), "--json"]

    assert run(["ttnn", "diff", str(file), *twice, *options]) == EXIT_FINE
    document = json.loads(capsys.readouterr().out)
    assert document["ops"] > 500
    assert (document["removed"], document["added"], document["changed"]) == ([], [], [])


def test_one_environment_is_an_error_of_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ttnn", "diff", "--python", "one"]) == EXIT_BAD_INPUT
    assert "--ttnn VERSION" in capsys.readouterr().err
