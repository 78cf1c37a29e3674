"""How long warm runs take: median and median absolute deviation. Needs torch alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
from torch import Tensor

_WARM_UP = 3


def timed(
    compiled: Callable[..., Any], eager: Callable[..., Any], inputs: list[Tensor], asked: Mapping[str, Any]
) -> dict[str, object]:
    """Time the backend and eager PyTorch on the same inputs; the first runs of each do not count."""
    runs, most_s = int(asked.get("runs", 20)), float(asked.get("most_s", 1.0))
    with torch.no_grad():
        samples = _samples(compiled, inputs, runs, most_s)
        plain = _samples(eager, inputs, runs, most_s)
    middle = median(samples)
    return {
        "median_s": middle,
        "mad_s": median(abs(sample - middle) for sample in samples),
        "runs": len(samples),
        "eager_median_s": median(plain),
    }


def _samples(run: Callable[..., Any], inputs: list[Tensor], runs: int, most_s: float) -> list[float]:
    for _ in range(_WARM_UP):
        run(*inputs)
    samples: list[float] = []
    began = time.perf_counter()
    while len(samples) < runs and (not samples or time.perf_counter() - began < most_s):
        start = time.perf_counter()
        run(*inputs)
        samples.append(time.perf_counter() - start)
    return samples
