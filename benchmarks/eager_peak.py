"""Whether real memory lies between the two ends of the peak that `cost` reports, for every architecture that runs here.

`python benchmarks/eager_peak.py [TYPES...]`: each transformers model type at tiny size is captured on tensors without
data, with and without reuse of equal layers, then run for real under torch's profiler. The profiler sees every
allocation and release of the CPU allocator: the running sum of these, on top of parameters, buffers and inputs, is the
measured peak. Kernels may take scratch memory that no tensor of the model holds: it is in the measured peak only. So
the model runs for real once more under torch's MemTracker, which follows the storages of real tensors: the tracked
peak.
"""

import argparse
import copy
import gc
import json
import sys
from pathlib import Path
from statistics import median

import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.models import load
from torchstone.models.inputs import InputOptions

_NEAR = 0.05


def main() -> None:
    """Measure each type and print how far the ends are from the measured peak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="take each n-th type only")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--rows", type=Path, help="append one JSON line for each type to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    options = InputOptions(batch_size=arguments.batch_size, seq_len=arguments.seq_len)
    rows: list[dict[str, float]] = []
    for name in arguments.types or sorted(CONFIG_MAPPING)[:: arguments.every]:
        row = measure(name if "/" in name or ":" in name else f"tiny:{name}", options)
        if row is None:
            continue
        rows.append(row)
        if arguments.rows is not None:
            with arguments.rows.open("a") as lines:
                lines.write(json.dumps({"type": name, **row}) + "\n")
        print(f"{name:32} ideal {row['ideal']:7.3f}  eager {row['eager']:7.3f}  no reuse {row['plain']:7.3f}"
              f"  measured {row['measured'] / 2**20:9.2f} MiB", flush=True)  # fmt: skip
    summary(rows)


def measure(name: str, options: InputOptions) -> dict[str, float] | None:
    """The two ends as shares of the measured growth over what is there before; None where it does not run here."""
    try:
        model, inputs = load(name, options=options, device="cpu")
        traces = [capture(copy.deepcopy(model), inputs, "fake", reuse=reuse) for reuse in (True, False)]
        reused, plain = (trace.eager_memory for trace in traces)
        if any(trace.failure for trace in traces) or reused is None or plain is None:
            return None
        before = reused.before_bytes
        measured = before + growth(model, inputs.args, inputs.kwargs)
        tracked = tracked_peak(model, inputs.args, inputs.kwargs)
    except Exception as error:  # noqa: BLE001 - some types cannot be built at this size, or not run on the CPU
        print(f"{name}: {str(error).splitlines()[:1]}", file=sys.stderr)
        return None
    table = price(traces[0])
    return {
        "measured": measured,
        "before": before,
        "tracked": tracked,
        "ideal": (table.peak.total_bytes - before) / (measured - before),
        "eager": (reused.peak_bytes - before) / (measured - before),
        "plain": (plain.peak_bytes - before) / (measured - before),
    }


def growth(model: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> int:
    """The most bytes that the CPU allocator gave out during a forward pass."""
    args, kwargs = copy.deepcopy((args, kwargs))
    gc.collect()
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        output = model(*args, **kwargs)
    del output
    held = most = 0
    changes = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(changes, key=lambda one: one.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def tracked_peak(model: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> int:
    """The most bytes that live tensors shared at a time, by torch's own tracker, on real tensors."""
    args, kwargs = copy.deepcopy((args, kwargs))
    tracker = MemTracker()
    tracker.track_external(model, *(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)))
    with torch.no_grad(), tracker:
        model(*args, **kwargs)
    return sum(held["Total"] for held in tracker.get_tracker_snapshot("peak").values())


def summary(rows: list[dict[str, float]]) -> None:
    """How many types lie within which distance."""
    if not rows:
        return
    for end in ("ideal", "eager", "plain"):
        ratios = [row[end] for row in rows]
        within = sum(abs(ratio - 1) <= _NEAR for ratio in ratios)
        whole = [(ratio * (row["measured"] - row["before"]) + row["before"]) / row["measured"]
                 for ratio, row in zip(ratios, rows, strict=True)]  # fmt: skip
        near = sum(abs(ratio - 1) <= _NEAR for ratio in whole)
        print(f"{end}: growth {within} of {len(rows)} within 5 %, median {median(ratios):.3f}, lowest "
              f"{min(ratios):.3f}, highest {max(ratios):.3f}; whole peak {near} within 5 %, lowest {min(whole):.3f}, "
              f"highest {max(whole):.3f}")  # fmt: skip
        lives = [whole_one * row["measured"] / row["tracked"] for whole_one, row in zip(whole, rows, strict=True)]
        close = sum(abs(ratio - 1) <= _NEAR for ratio in lives)
        print(f"{end}: against tracked lifetimes {close} of {len(rows)} within 5 %, lowest {min(lives):.3f}, "
              f"highest {max(lives):.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
