"""Whether a captured training step has the ops and the peak of a real one, for every architecture that runs here.

`python benchmarks/training_peak.py [TYPES...]`: each transformers model type at tiny size, without a cache, is captured
with its backward pass on tensors without data. Then it really runs, with a gradient of ones at each output. Torch's
profiler sees each allocation while no dispatch mode is open: under one, autograd adds gradients out of place. What a
kernel allocates and gives back before it ends is left out. A dispatch mode counts the ops of a further run; to it, an
op in place is the same as the other one.
"""

import argparse
import copy
import gc
import sys
from collections import Counter
from collections.abc import Mapping
from inspect import signature
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.models import load
from torchstone.models.inputs import InputOptions
from torchstone.record.trace import Trace

_NEAR = 0.003
_SHOWN = 4


class Names(TorchDispatchMode):
    """The ops of a real run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an op."""
        del types
        self.names[str(func)] += 1
        return func(*args, **(kwargs or {}))


class Allocations:
    """The allocations of a profiled run: when, where, how much, and the ops that were running."""

    def __init__(self, events: Any) -> None:
        self.rows: list[tuple[int, int, int, tuple[tuple[str, int], ...]]] = []
        for event in events:
            self._walk(event, ())
        self.rows.sort(key=lambda row: row[0])

    def _walk(self, event: Any, running: tuple[tuple[str, int], ...]) -> None:
        if event.tag == _EventType.Allocation:
            fields = event.extra_fields
            self.rows.append((event.start_time_ns, fields.ptr, fields.alloc_size, running))
            return
        for child in event.children:
            self._walk(child, (*running, (event.name, event.start_time_ns)))

    def peak_bytes(self, kernels: set[str]) -> int:
        """The most bytes that were allocated, but for what one op of these allocated for itself."""
        began: dict[int, int] = {}
        own: set[int] = set()
        for place, (_, pointer, size, running) in enumerate(self.rows):
            if size > 0:
                began[pointer] = place
            elif pointer in began:
                first = began.pop(pointer)
                if any(one[0] in kernels for one in set(running) & set(self.rows[first][3])):
                    own |= {first, place}
        sizes = [size for place, (_, _, size, _) in enumerate(self.rows) if place not in own]
        return max(accumulate(sizes), default=0)


def main() -> None:
    """Print each type that differs, and how many do not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="take each n-th type only")
    arguments = parser.parse_args()
    ran = near = same_ops = above = 0
    for name in arguments.types or sorted(CONFIG_MAPPING)[:: arguments.every]:
        try:
            found = measure(f"tiny:{name}")
        except Exception as error:  # noqa: BLE001 - some types cannot be built at this size, or have no gradients
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[:1]}", file=sys.stderr)
            continue
        if found is None:
            continue
        ideal, eager, differing = found
        ran += 1
        near += abs(eager - 1) <= _NEAR
        same_ops += not differing
        above += ideal > 1
        if abs(eager - 1) > _NEAR or differing or ideal > 1:
            shown = dict(list(differing.items())[:_SHOWN])
            print(f"{name:28} ideal {ideal:.4f}  eager {eager:.4f}  ops {shown}", flush=True)
    print(
        f"{ran} types: eager peak of {near} within {_NEAR:.1%}, ops of {same_ops} equal, ideal end of {above} too high"
    )


def measure(name: str) -> tuple[float, float, Mapping[str, tuple[int, int]]] | None:
    """Both ends of the captured peak by that of a real run, and ops that come more or less often in the capture."""
    model, inputs = load(name, options=InputOptions(batch_size=2, seq_len=32), device="cpu")
    without_cache = {"use_cache": False} if "use_cache" in signature(model.forward).parameters else {}
    given = (inputs.args, {**inputs.kwargs, **without_cache})
    for module in model.modules():
        for config in (getattr(module, "config", None), *vars(getattr(module, "config", None) or object).values()):
            if getattr(config, "use_cache", None) is True:
                config.use_cache = False
    trace = capture(copy.deepcopy(model), given, "fake", backward=True)
    if trace.failure is not None:
        return None
    peak_bytes, names = really(model, copy.deepcopy(given), trace)
    captured = Counter(_out_of_place(trace.ops.signatures[number].op) for number in trace.ops.signature_of)
    differing = {op: (captured[op], names[op]) for op in captured | names if captured[op] != names[op]}
    peak = price(trace).peak
    return peak.total_bytes / peak_bytes, (peak.eager_bytes or 0) / peak_bytes, differing


def _out_of_place(op: str) -> str:
    name, _, overload = op.rpartition(".")
    return f"{name.removesuffix('_')}.{overload}"


def really(model: nn.Module, given: tuple[tuple[Any, ...], dict[str, Any]], trace: Trace) -> tuple[int, Counter[str]]:
    """A forward pass, and a backward pass from all outputs: its peak, and its ops."""
    if trace.eager_memory is None:
        msg = "eager lifetimes were not observed"
        raise ValueError(msg)
    kernels = {"::".join(one.op.split(".")[:2]) for one in trace.ops.signatures}
    for _ in range(2):  # the first call of an op may allocate what it keeps
        model.zero_grad()
        own = copy.deepcopy(given)
        gc.collect()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            step(model, own)
    allocations = Allocations(seen.profiler.kineto_results.experimental_event_tree())
    model.zero_grad()
    with Names() as ops:
        step(model, given)
    names: Counter[str] = Counter()
    for op, count in ops.names.items():
        names[_out_of_place(op)] += count
    return trace.eager_memory.before_bytes + allocations.peak_bytes(kernels), names


def step(model: nn.Module, given: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    """Run a training step."""
    args, kwargs = given
    outputs = [one for one in tensors_in(model(*args, **kwargs)) if one.requires_grad]
    torch.autograd.backward(outputs, [torch.ones_like(one) for one in outputs])


def tensors_in(value: object) -> list[Tensor]:
    """The tensors in what a model gives back."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for part in parts for tensor in tensors_in(part)]


if __name__ == "__main__":
    main()
