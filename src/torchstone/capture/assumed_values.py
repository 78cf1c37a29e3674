"""Values that are assumed where a model reads back what depends on weights that have none.

A mixture of experts asks which experts its router chose, and loops over them: without values it cannot go on. Whatever
is chosen by comparing unknown numbers is then assumed: a choice of k of n (topk, argmax, multinomial) is spread evenly,
an order is left as it is, and a comparison sees numbers drawn from a standard normal distribution. All that follows
from an assumed value is computed, so that counts, masks and loops agree with each other. Every assumption is stated,
with its counts. An integer that comes from unknown numbers in another way, such as a predicted duration, has no
plausible value: there the run ends.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from torchstone.capture.ops import map_tensors, tensors_in
from torchstone.units import many

Arguments = tuple[Any, ...]
Keywords = Mapping[str, Any]

NO_VALUES = (DataDependentOutputException, DynamicOutputShapeException)

_aten = torch.ops.aten
_CHOICES = {  # op -> (which of its results are indices, whether it chooses several of them)
    _aten.topk: (1, True),
    _aten.multinomial: (None, True),
    _aten.argmax: (None, False),
    _aten.argmin: (None, False),
    _aten.max: (1, False),
    _aten.min: (1, False),
    _aten.kthvalue: (1, False),
    _aten.median: (1, False),
    _aten.mode: (1, False),
}
_ORDERS = {_aten.sort: 1, _aten.argsort: None}
_SHAPED_BY_A_MASK = (_aten.masked_select, _aten.repeat_interleave, _aten.index, _aten.bincount)
_SEED = 0


class AssumedValues:
    """Gives values to what is chosen or compared without values; `statements` says which, and how often."""

    def __init__(self) -> None:
        self._stated: dict[str, None] = {}  # in order, each once

    def statements(self) -> tuple[str, ...]:
        """The assumptions made, each once."""
        return tuple(self._stated)

    def fill(self, op: OpOverload, args: Arguments, kwargs: Keywords, result: Any) -> Any:
        """The result of an op that ran without values, with values where they can be assumed."""
        packet = op.overloadpacket
        with _disable_current_modes():
            if packet in _CHOICES:
                place, several = _CHOICES[packet]
                return _replaced(result, place, lambda made: self._chosen(op, args, kwargs, made, several=several))
            if packet in _ORDERS:
                return _replaced(result, _ORDERS[packet], lambda made: self._in_order(op, args, kwargs, made))
            if isinstance(result, Tensor) and result.dtype is torch.bool and _only_floats_unknown(args):
                return self._compare(op, args, kwargs)
        return result

    def read_back(self, op: OpOverload, args: Arguments, kwargs: Keywords) -> Any:
        """Run an op whose result has no shape or value without values; None where nothing can be assumed."""
        if not _only_floats_unknown(args):
            return None
        with _disable_current_modes():
            result = self._on_drawn(op, args, kwargs)
        if op.overloadpacket not in _SHAPED_BY_A_MASK:
            self._state(op, "reads values drawn from a standard normal distribution")
        return result

    def _state(self, op: OpOverload, what: str) -> None:
        self._stated[f"{op} {what}"] = None

    @staticmethod
    def _on_drawn(op: OpOverload, args: Arguments, kwargs: Keywords) -> Any:
        """Run an op on values drawn for what has none; the same ones in each equal call."""
        generator = torch.Generator().manual_seed(_SEED)
        draw = partial(_drawn, generator)
        return op(*map_tensors(draw, args), **map_tensors(draw, dict(kwargs)))

    def _chosen(self, op: OpOverload, args: Arguments, kwargs: Keywords, made: Tensor, *, several: bool) -> Tensor:
        given: Tensor = args[0]
        dim = _dim(op, args, kwargs)
        if dim is None or not given.dim():  # of all values
            self._state(op, f"chooses the first of {given.numel():,}")
            return torch.zeros(made.shape, dtype=made.dtype)
        choices = given.shape[dim]
        picks = made.shape[dim] if several else 1
        rows = prod(given.shape) // max(choices, 1)
        others = [size for place, size in enumerate(given.shape) if place != dim % given.dim()]
        even = (torch.arange(rows * picks) % max(choices, 1)).reshape(*others, picks).to(made.dtype)
        each = rows * picks / max(choices, 1)
        self._state(
            op, f"chooses {picks:,} of {choices:,} in each of {many(rows, 'row')}, spread evenly: {each:,.4g} rows each"
        )
        return even.movedim(-1, dim).contiguous() if several else even.reshape(made.shape)

    def _in_order(self, op: OpOverload, args: Arguments, kwargs: Keywords, made: Tensor) -> Tensor:
        self._state(op, "leaves the order as it is")
        if not made.dim():
            return torch.zeros((), dtype=made.dtype)
        dim = _dim(op, args, kwargs)
        dim = -1 if dim is None else dim
        order = torch.arange(made.shape[dim], dtype=made.dtype)
        return order.expand(made.movedim(dim, -1).shape).movedim(-1, dim).contiguous()

    def _compare(self, op: OpOverload, args: Arguments, kwargs: Keywords) -> Tensor:
        result: Tensor = self._on_drawn(op, args, kwargs)
        true, total = int(result.sum()), result.numel()
        self._state(op, f"tests values drawn from a standard normal distribution: {true:,} of {total:,} are true")
        return result


def _has_no_values(tensor: Tensor) -> bool:
    return tensor.is_meta or isinstance(tensor, FakeTensor)


def _drawn(generator: torch.Generator, tensor: Tensor) -> Tensor:
    """A tensor with values: its own, or some of a standard normal distribution."""
    if not _has_no_values(tensor):
        return tensor
    return torch.randn(tensor.shape, generator=generator).to(tensor.dtype)


def _only_floats_unknown(args: Arguments) -> bool:
    unknown = [one for one in tensors_in(args) if _has_no_values(one)]
    return bool(unknown) and all(one.is_floating_point() for one in unknown)


def _dim(op: OpOverload, args: Arguments, kwargs: Keywords) -> int | None:
    """The dimension along which an op chooses; None: all of them."""
    names = [argument.name for argument in op._schema.arguments]
    if "dim" not in names:
        return -1 if op.overloadpacket is _aten.multinomial else None
    place = names.index("dim")
    default = op._schema.arguments[place].default_value
    found = args[place] if place < len(args) else kwargs.get("dim", default)
    return None if found is None else int(found)


def _replaced(result: Any, place: int | None, change: Callable[[Tensor], Tensor]) -> Any:
    if place is None or isinstance(result, Tensor):
        return change(result) if place is None else result  # max over all values has no indices
    return tuple(change(one) if number == place else one for number, one in enumerate(result))
