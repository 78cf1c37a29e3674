from dataclasses import dataclass

import pytest
import torch

from torchstone.sweep.child import timing as child_timing
from torchstone.sweep.child.timing import timed


@dataclass
class Clock:
    """Time that passes only when somebody says so."""

    now_s: float = 0.0

    def perf_counter(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(child_timing, "time", made)
    return made


def test_the_median_is_that_of_warm_runs_and_the_first_do_not_count(clock: Clock) -> None:
    took_s = iter([100.0, 50.0, 50.0, 1.0, 2.0, 4.0, 9.0])

    def steady(_: torch.Tensor) -> None:
        clock.now_s += 2.0

    def slow_at_first(_: torch.Tensor) -> None:
        clock.now_s += next(took_s)

    found = timed(slow_at_first, steady, [torch.ones(1)], {"runs": 4, "most_s": 1000})

    assert next(took_s, None) is None
    assert (found["median_s"], found["mad_s"], found["runs"], found["eager_median_s"]) == (3.0, 1.5, 4, 2.0)
    assert (found["ratios"], found["rounds_s"]) == ([1.5], [3.0])


def test_measuring_ends_when_its_time_is_up(clock: Clock) -> None:
    def takes_a_second(_: torch.Tensor) -> None:
        clock.now_s += 1

    found = timed(takes_a_second, takes_a_second, [torch.ones(1)], {"runs": 1000, "most_s": 9.0})

    assert (found["runs"], found["ratios"]) == (5, [1.0])
