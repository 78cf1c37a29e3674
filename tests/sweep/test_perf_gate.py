"""The performance gate on times that were drawn, so that the truth is known."""

from math import exp
from random import Random

import pytest

from torchstone.sweep.perf_gate import Change, PerfComparison, Sample, holm, judge_times

OPS, ROUNDS = 30, 7


def rounds(draw: Random, ratio: float, noise: float) -> tuple[float, ...]:
    """Ratios of one vector; one round in twenty is disturbed by something else on the machine."""
    return tuple(
        ratio * exp(draw.gauss(0, noise) + (abs(draw.gauss(0, 0.5)) if draw.random() < 0.05 else 0))
        for _ in range(ROUNDS)
    )


def compared(seed: int, *, slowed: dict[str, float], noise: float = 0.04, configurations: int = 4) -> PerfComparison:
    draw = Random(seed)  # noqa: S311 - noise, no secret
    samples = []
    for number in range(OPS):
        op = f"op{number}"
        for place in range(1 if number % 3 == 0 else configurations):
            own = exp(draw.gauss(0, 1))
            after = rounds(draw, own * slowed.get(op, 1.0), noise)
            samples.append(Sample(id=f"{op}.{place}", op=op, before=rounds(draw, own, noise), after=after))
    return judge_times(samples, slower_by=1.15)


def test_two_runs_of_the_same_code_give_next_to_no_alarm() -> None:
    found = [compared(seed, slowed={}) for seed in range(60)]

    tests = sum(len(one.ops) + len(one.configurations) for one in found)
    assert sum(len(one.slower) for one in found) < tests * 0.001


def test_an_op_that_takes_a_third_longer_is_found() -> None:
    slowed = {"op1": 1.3, "op3": 1.3, "op10": 1.3}
    found = [compared(seed, slowed=slowed) for seed in range(60)]

    hits = sum(one.op in slowed for result in found for one in result.ops if one.verdict == "slower")
    others = sum(one.op not in slowed for result in found for one in result.slower)
    assert hits >= 0.95 * 3 * len(found)
    assert others <= 1


def test_everything_slower_is_not_hidden_by_everything_else_being_slower() -> None:
    found = compared(1, slowed={f"op{number}": 1.4 for number in range(OPS)})

    assert found.overall == pytest.approx(1.4, rel=0.05)
    assert len([one for one in found.ops if one.verdict == "slower"]) >= 0.9 * OPS


def test_the_true_ratio_is_inside_the_interval_nearly_always() -> None:
    inside = [one.low <= 1.25 <= one.high for seed in range(40) for one in _changes(seed) if one.op == "op7"]

    assert sum(inside) >= 0.97 * len(inside)


def _changes(seed: int) -> tuple[Change, ...]:
    return compared(seed, slowed={"op7": 1.25}).ops


def test_a_faster_op_is_no_regression_and_few_rounds_are_not_judged() -> None:
    faster = compared(3, slowed={"op4": 0.6})
    few = judge_times([Sample(id="a", op="b", before=(1.0, 1.1), after=(9.0, 9.1))], slower_by=1.15)

    assert [one.verdict for one in faster.ops if one.op == "op4"] == ["faster"]
    assert not faster.slower
    assert (few.not_judged, few.ops, few.overall) == (1, (), None)


def test_p_values_are_corrected_for_their_number_and_stay_in_order() -> None:
    assert holm([0.01, 0.5, 0.02]) == pytest.approx([0.03, 0.5, 0.04])
    assert holm([]) == []
