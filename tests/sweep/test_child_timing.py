import time

import torch

from torchstone.sweep.child_timing import timed


def test_the_median_is_that_of_warm_runs_and_the_first_do_not_count() -> None:
    calls: list[float] = []

    def slow_at_first(_: torch.Tensor) -> None:
        calls.append(time.perf_counter())
        time.sleep(0.2 if len(calls) == 1 else 0.002)

    found = timed(slow_at_first, lambda _: None, [torch.ones(1)], {"runs": 4})

    assert len(calls) == 3 + 4
    assert found["runs"] == 4
    assert 0.002 <= found["median_s"] < 0.1
    assert found["eager_median_s"] < found["median_s"]


def test_measuring_ends_when_its_time_is_up() -> None:
    found = timed(lambda _: time.sleep(0.01), lambda _: None, [torch.ones(1)], {"runs": 1000, "most_s": 0.05})

    assert 1 <= found["runs"] < 20
