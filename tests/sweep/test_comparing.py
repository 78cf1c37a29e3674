import pytest
from msgspec.structs import replace

from tests.sweep.builders import result, run, timing
from torchstone.record.check import Outcome
from torchstone.record.vector import Timing
from torchstone.sweep.compare_runs import Pair, RunComparison, compare_runs

PASSED, WRONG, CRASHED, NOT_RUN = Outcome.PASSED, Outcome.WRONG, Outcome.CRASHED, Outcome.NOT_RUN


def ids(pairs: tuple[Pair, ...]) -> list[str]:
    return [pair.id for pair in pairs]


def compared(before: dict[str, Outcome], after: dict[str, Outcome]) -> RunComparison:
    first = run("1", *(result(name, outcome) for name, outcome in before.items()))
    second = run("2", *(result(name, outcome) for name, outcome in after.items()))
    return compare_runs(first, second)


def test_every_vector_is_counted_in_one_place() -> None:
    found = compared(
        {
            "same": PASSED,
            "worse": PASSED,
            "better": WRONG,
            "bad": WRONG,
            "other": WRONG,
            "gone": PASSED,
            "skip": PASSED,
        },
        {
            "same": PASSED,
            "worse": CRASHED,
            "better": PASSED,
            "bad": WRONG,
            "other": CRASHED,
            "new": WRONG,
            "skip": NOT_RUN,
        },
    )

    assert ids(found.regressions) == ["worse"]
    assert ids(found.fixed) == ["better"]
    assert ids(found.other_failure) == ["other"]
    assert ids(found.new_failures) == ["new"]
    assert (found.still_failing, found.still_passing) == (2, 1)
    assert (found.only_first, found.only_second, found.not_comparable) == (1, 1, 1)
    assert found.is_worse


def test_equal_runs_are_not_worse() -> None:
    assert not compared({"a": PASSED, "b": WRONG}, {"a": PASSED, "b": WRONG}).is_worse


def timed(before: float, after: float, noise: float, *, rounds: int = 5) -> RunComparison:
    """Two runs of a vector whose rounds vary by some noise; the machine of the second run is half as fast."""
    spread = [1 + noise * (place - (rounds - 1) / 2) for place in range(rounds)]

    def measured(ratio: float, eager_s: float) -> Timing:
        ratios = tuple(ratio * one for one in spread)
        return replace(timing(ratio * eager_s, 0.0), ratios=ratios, eager_median_s=eager_s)

    first = run("1", result("a", timing=measured(before, 1.0)))
    return compare_runs(first, run("2", result("a", timing=measured(after, 2.0))), slower_by=1.2)


def test_slower_beyond_the_factor_and_the_noise_is_a_regression() -> None:
    found = timed(1.0, 1.5, 0.01)

    assert ids(found.slower) == ["a"]
    assert found.perf is not None
    assert found.perf.ops[0].ratio == pytest.approx(1.5)
    assert found.is_worse


def test_a_slower_machine_is_no_regression() -> None:
    assert not timed(1.0, 1.0, 0.01).is_worse


def test_one_round_proves_nothing() -> None:
    found = timed(1.0, 3.0, 0.0, rounds=1)

    assert found.perf is not None
    assert (found.perf.not_judged, found.is_worse) == (1, False)


def test_slower_within_the_factor_is_not() -> None:
    assert not timed(1.0, 1.1, 0.001).is_worse


def test_slower_within_the_noise_is_not() -> None:
    assert not timed(1.0, 1.5, 0.2).is_worse


def test_faster_is_told() -> None:
    found = timed(1.5, 1.0, 0.01)

    assert (ids(found.faster), found.is_worse) == (["a"], False)
