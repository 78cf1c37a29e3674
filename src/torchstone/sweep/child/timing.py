"""How long warm runs take, by turns with eager PyTorch: medians, deviation and the ratio of both. Needs torch alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
from torch import Tensor

_WARM_UP = 3
_SHORTEST_S = 2e-4  # a sample of a shorter op is several calls: clocks and interrupts blur single ones
_MOST_CALLS = 1_000


def timed(
    compiled: Callable[..., Any], eager: Callable[..., Any], inputs: list[Tensor], asked: Mapping[str, Any]
) -> dict[str, object]:
    """Time the backend and eager PyTorch on the same inputs by turns; the first runs of each do not count.

    A disturbance of the machine meets both, so the ratio of neighbouring samples is steadier than either.
    """
    runs, most_s = int(asked.get("runs", 20)), float(asked.get("most_s", 1.0))
    with torch.no_grad():
        calls = [_warmed_up(run, inputs) for run in (compiled, eager)]
        samples: list[tuple[float, float]] = []
        began = time.perf_counter()
        while len(samples) < runs and (len(samples) < _WARM_UP or time.perf_counter() - began < most_s):
            backward = len(samples) % 2 == 1  # who is first finds the caches of the other
            pair = [_sample(run, inputs, count) for run, count in _turns(compiled, eager, calls, backward=backward)]
            samples.append((pair[1], pair[0]) if backward else (pair[0], pair[1]))
    own = [one for one, _ in samples]
    middle = median(own)
    ratios = [one / other for one, other in samples if other > 0.0]  # a clock may stand still between two readings
    return {
        "median_s": middle,
        "mad_s": median(abs(sample - middle) for sample in own),
        "runs": len(samples),
        "eager_median_s": median(other for _, other in samples),
        "ratios": [median(ratios)] if ratios else [],
        "rounds_s": [middle],
    }


def _turns(
    compiled: Callable[..., object], eager: Callable[..., object], calls: list[int], *, backward: bool
) -> list[tuple[Callable[..., object], int]]:
    order = [(compiled, calls[0]), (eager, calls[1])]
    return order[::-1] if backward else order


def _warmed_up(run: Callable[..., object], inputs: list[Tensor]) -> int:
    """Calls for one sample, from the fastest of the first runs."""
    fastest = min(_sample(run, inputs, 1) for _ in range(_WARM_UP))
    return max(1, min(_MOST_CALLS, round(_SHORTEST_S / max(fastest, 1e-9))))


def _sample(run: Callable[..., object], inputs: list[Tensor], calls: int) -> float:
    """Seconds for one call."""
    start = time.perf_counter()
    for _ in range(calls):
        run(*inputs)
    return (time.perf_counter() - start) / calls
