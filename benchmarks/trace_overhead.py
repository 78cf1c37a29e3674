"""What recording costs: a training step of a small model, bare and recorded, and the cost per op call.

PYTHONPATH=src python benchmarks/trace_overhead.py [--model tiny:bert] [--rounds 7]
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from statistics import median

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.capture.op_log import Recording
from torchstone.capture.run import run_backward
from torchstone.models.load_model import load


class _PassesOn(TorchDispatchMode):
    """Sees every op and does nothing: what torch itself charges for looking."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN204
        return func(*args, **(kwargs or {}))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="tiny:bert")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    model, inputs = load(asked.model, device="cpu")

    def step() -> None:
        model.zero_grad()
        run_backward(model(*inputs.args, **inputs.kwargs))

    recordings: list[Recording] = []

    def recorded(looks: int) -> AbstractContextManager[None]:
        recordings.append(Recording(looks=looks))
        return recordings[-1].opened()

    step()
    bare_s = _median_s(step, nullcontext, asked.rounds)
    passed_s = _median_s(step, _PassesOn, asked.rounds)
    recorded(8)
    seen_s = _median_s(step, lambda: recorded(0), asked.rounds)
    looked_s = _median_s(step, lambda: recorded(8), asked.rounds)
    calls, distinct = recordings[-1].calls, len(recordings[-1].seen)
    print(f"{asked.model}: {calls} op calls of a training step, {distinct} configurations, median of {asked.rounds}")
    print(f"{'':34}{'step':>10}{'per op':>12}{'factor':>9}")
    for name, seconds in (
        ("bare", bare_s),
        ("a dispatch mode that does nothing", passed_s),
        ("recorded, no values", seen_s),
        ("recorded, 8 looks at values", looked_s),
    ):
        extra_us = (seconds - bare_s) / calls * 1e6
        print(f"{name:34}{seconds * 1e3:7.1f} ms{extra_us:9.1f} us{seconds / bare_s:8.2f}x")
    _print_by_op(recordings[-1], looked_s - bare_s)


def _median_s(step: Callable[[], None], around: Callable[[], AbstractContextManager[object]], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        with around():
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
    return median(times)


def _print_by_op(recording: Recording, extra_s: float) -> None:
    """The calls behind the figure: which ops were recorded, most called first."""
    counts: Counter[str] = Counter()
    for seen in recording.seen.values():
        counts[seen.configuration.op] += seen.places.total()
    print(f"\nrecording added {extra_s * 1e3:.1f} ms; the most called ops:")
    for op, count in counts.most_common(8):
        print(f"  {count:5}  {op}")


if __name__ == "__main__":
    main()
