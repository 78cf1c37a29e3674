"""A call of ttnn on real hardware, with values: compared with the reference that ttnn itself has for the op.

A mock device has no values, so that nothing here runs on one. It was never run on hardware either: a test uses a
library that computes with torch in the place of ttnn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torchstone.numerics.verdict import judge

if TYPE_CHECKING:
    from torch import Tensor as TorchTensor

    from torchstone.backends.ttnn.rebuild import Call

NO_REFERENCE = "accepted; ttnn has no golden function for the op, so that its values were not compared"


class Library(Protocol):
    """What is used of ttnn."""

    Tensor: type[Any]

    def get_golden_function(self, operation: Callable[..., object]) -> Callable[..., object]:
        """The reference of an op on tensors of torch; raises RuntimeError where there is none."""

    def from_torch(self, tensor: TorchTensor, **how: object) -> Any:
        """A tensor of the device."""

    def to_torch(self, tensor: Any) -> TorchTensor:
        """Its values."""


def compare_values(call: Call, library: Library, *, seed: int = 0) -> dict[str, object]:
    """Make the call with random values: the judge's verdict, or in `reason` why there is none."""
    try:
        reference = library.get_golden_function(call.op)
    except (RuntimeError, AttributeError, KeyError):
        return {"reason": NO_REFERENCE}
    filled = _Filled(library, seed)
    positional = [filled.pair(one) for one in call.positional]
    named = {name: filled.pair(value) for name, value in call.named.items()}
    result = call.op(*(one[0] for one in positional), **{name: one[0] for name, one in named.items()})
    expected = reference(*(one[1] for one in positional), **{name: one[1] for name, one in named.items()})
    return judge(_leaves(expected), [library.to_torch(one) for one in _leaves(result)])


class _Filled:
    """Tensors of a call, each with random values on the device and the same values in torch."""

    def __init__(self, library: Library, seed: int) -> None:
        import torch

        self._library = library
        self._generator = torch.Generator().manual_seed(seed)

    def pair(self, value: Any) -> tuple[Any, Any]:
        """An argument for the device, and for the reference; what is no tensor is the same for both."""
        if isinstance(value, list | tuple):
            pairs = [self.pair(one) for one in value]
            return [one[0] for one in pairs], [one[1] for one in pairs]
        if not isinstance(value, self._library.Tensor):
            return value, value
        import torch

        shape = [int(size) for size in value.shape]
        if "INT" in str(value.dtype).upper():
            drawn = torch.randint(0, 2, shape, generator=self._generator, dtype=torch.int32)
        else:
            drawn = torch.randn(shape, generator=self._generator).bfloat16()
        how = {"dtype": value.dtype, "layout": value.layout}
        device = value.device()
        if device is not None:
            how |= {"device": device, "memory_config": value.memory_config()}
        made = self._library.from_torch(drawn, **how)
        return made, self._library.to_torch(made)  # what the element type of the device keeps of the values


def _leaves(result: Any) -> list[Any]:
    if isinstance(result, Sequence):
        return [one for part in result for one in _leaves(part)]
    return [] if result is None else [result]
