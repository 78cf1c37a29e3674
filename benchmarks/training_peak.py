"""Whether a captured training step has the ops and the peak of a real one, for every architecture that runs here.

`python benchmarks/training_peak.py [TYPES...]`: each transformers model type at tiny size, without a cache, is captured
with its backward pass on tensors without data. Then it really runs, with a gradient of ones at each output, under a
dispatch mode of torch that notes the name of each op, and the storages that are alive by weak references.
"""

import argparse
import copy
import sys
import weakref
from collections import Counter
from collections.abc import Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.models import load
from torchstone.models.inputs import InputOptions

_NEAR = 0.003
_SHOWN = 4


class Observer(TorchDispatchMode):
    """The ops of a real run, and the most bytes that live storages had."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.peak_bytes = 0
        self._live_bytes = 0
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def add(self, tensor: Tensor) -> None:
        """Count the memory of a tensor until it dies."""
        memory = tensor.untyped_storage()
        place, size = memory._cdata, memory.nbytes()  # noqa: SLF001 - there is no other name for a storage
        if place in self._alive:
            return
        self._live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self._live_bytes)

        def died(_: object) -> None:
            self._live_bytes -= size
            del self._alive[place]

        self._alive[place] = weakref.ref(memory, died)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an op, and look at what it gives."""
        del types
        result = func(*args, **(kwargs or {}))
        self.names[str(func)] += 1
        for one in tree_leaves(result):
            if isinstance(one, Tensor):
                self.add(one)
        return result


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
    seen = really(model, copy.deepcopy(given))
    captured = Counter(trace.ops.signatures[number].op for number in trace.ops.signature_of)
    differing = {op: (captured[op], seen.names[op]) for op in captured | seen.names if captured[op] != seen.names[op]}
    peak = price(trace).peak
    return peak.total_bytes / seen.peak_bytes, (peak.eager_bytes or 0) / seen.peak_bytes, differing


def really(model: nn.Module, given: tuple[tuple[Any, ...], dict[str, Any]]) -> Observer:
    """A forward pass, and a backward pass from all outputs."""
    args, kwargs = given
    seen = Observer()
    for tensor in (*model.parameters(), *model.buffers(), *tree_leaves(given)):
        if isinstance(tensor, Tensor):
            seen.add(tensor)
    with seen:
        result = model(*args, **kwargs)
        outputs = [one for one in tensors_in(result) if one.requires_grad]
        torch.autograd.backward(outputs, [torch.ones_like(one) for one in outputs])
    return seen


def tensors_in(value: object) -> list[Tensor]:
    """The tensors in what a model gives back."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for part in parts for tensor in tensors_in(part)]


if __name__ == "__main__":
    main()
