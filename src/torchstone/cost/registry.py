"""The price registry, the arguments that a price reads by name, and the bytes of a tensor."""

from collections.abc import Callable
from math import ceil, prod
from typing import TypeVar

from torchstone.errors import InputError
from torchstone.foreign import foreign_code
from torchstone.record.base import Record
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec, stored_bits
from torchstone.record.value import Items, Value, show_value, tensors_in

# Which function prices which op: a table that refuses a second price for the same op.


class Price(Record, frozen=True, kw_only=True):
    """What one call of an op costs; a multiply-add is two FLOPs."""

    flops: int = 0
    matmul_flops: int = 0  # the part of `flops` done by matrix multiplication
    causal_flops: int = 0  # the part of `matmul_flops` that is halved when causal attention counts half
    reads: tuple[int, ...] | None = None  # bytes read of each input; None: all of each input, once
    writes: tuple[int, ...] | None = None  # bytes written to each output; None: all of each output, once


class NoPriceError(Exception):
    """A call that its price function cannot price; the message says why."""


PriceFunction = Callable[[OpSignature], Price]
F = TypeVar("F", bound=PriceFunction)


class Entry(Record, frozen=True, kw_only=True):
    """A price function and the family of its ops."""

    function: PriceFunction
    kind: Kind


_PRICES: dict[str, Entry] = {}


def price_of(*ops: str, kind: Kind) -> Callable[[F], F]:
    """Register a price function for ops: `aten.mm` for all overloads, `aten.sum.dim_IntList` for one alone."""

    def register(function: F) -> F:
        for op in ops:
            name = _dotted(op)
            if name in _PRICES:
                msg = f"{name} has a price already ({_PRICES[name].function.__module__}); an op has one price only"
                raise InputError(msg)
            _PRICES[name] = Entry(function=function, kind=kind)
        return function

    return register


def register_price(*ops: str, kind: Kind = Kind.CUSTOM) -> Callable[[F], F]:
    """Price custom ops: `@register_price("mylib::my_op")` above a function from OpSignature to Price."""

    def register(function: F) -> F:
        price_of(*ops, kind=kind)(_answerable(function))
        return function

    return register


def _answerable(function: PriceFunction) -> PriceFunction:
    """A price from outside that fails says whose it is."""

    def priced(call: OpSignature) -> Price:
        with foreign_code(passing=(NoPriceError, InputError)) as ran:  # the user's code may raise anything
            found: object = function(call)
        if ran.error is not None:
            msg = f"the price of {call.op} ({function.__name__}) stops with {type(ran.error).__name__}: {ran.error}"
            raise InputError(msg) from ran.error
        if not isinstance(found, Price):
            msg = f"the price of {call.op} ({function.__name__}) gave {found!r}; a price function returns a Price"
            raise InputError(msg)
        return found

    return priced


def find_price(op: str) -> Entry | None:
    """The price of an op overload: its own, or that of all its overloads, or that of its functional twin."""
    packet = op.rpartition(".")[0]
    functional = packet.removesuffix("_")
    return _PRICES.get(op) or _PRICES.get(packet) or _PRICES.get(functional)


def priced_ops() -> tuple[str, ...]:
    """All names that have a price."""
    return tuple(sorted(_PRICES))


def forget_price(op: str) -> None:
    """Take a price back, so that another can be given."""
    _PRICES.pop(_dotted(op), None)


def _dotted(op: str) -> str:
    return op.replace("::", ".")


# Arguments of an op call by name, as the type a price needs; anything else has no price.


def tensor(call: OpSignature, *names: str) -> TensorSpec:
    """The tensor under the first of these names that the op has."""
    found = optional_tensor(call, *names)
    if found is None:
        msg = f"{call.op} has no tensor {' or '.join(names)}"
        raise NoPriceError(msg)
    return found


def optional_tensor(call: OpSignature, *names: str) -> TensorSpec | None:
    """The tensor under the first of these names that the op has, None where none was given."""
    for name in names:
        value = value_of(call, name)
        if isinstance(value, TensorSpec):
            return value
    return None


def tensors(call: OpSignature, name: str) -> tuple[TensorSpec, ...]:
    """The tensors of a list argument."""
    value = value_of(call, name)
    return tuple(item for item in value.items if isinstance(item, TensorSpec)) if isinstance(value, Items) else ()


def value_of(call: OpSignature, name: str) -> Value:
    """An argument's value, None where the op has no such argument."""
    for argument in call.arguments:
        if argument.name == name:
            return argument.value
    return None


def flag(call: OpSignature, name: str) -> bool:
    """Whether a switch is on."""
    return value_of(call, name) is True


def whole(call: OpSignature, name: str) -> int:
    """A whole number."""
    value = value_of(call, name)
    if not isinstance(value, int):
        msg = f"{call.op} got {name}={show_value(value)}, where a number is wanted"
        raise NoPriceError(msg)
    return value


def numbers(call: OpSignature, name: str) -> tuple[int, ...] | None:
    """A list of whole numbers, None where none was given."""
    value = value_of(call, name)
    if isinstance(value, int):
        return (value,)
    return tuple(item for item in value.items if isinstance(item, int)) if isinstance(value, Items) else None


def output(call: OpSignature, index: int = 0) -> TensorSpec:
    """One tensor of the result."""
    specs = call.output_specs
    if index >= len(specs):
        msg = f"{call.op} gave no tensor"
        raise NoPriceError(msg)
    return specs[index]


# How many bytes a tensor is worth when it is read, written or held.


_OUT = ("out", "out0", "out1", "out2")  # buffers that an op is given to write to


def bytes_of(spec: TensorSpec) -> int:
    """Bytes of a tensor's distinct elements: what an expanded dimension repeats lies in memory once."""
    if spec.stride is None or 0 not in spec.stride:
        return bytes_for(spec, spec.elements)
    return bytes_for(spec, prod(size for size, stride in zip(spec.shape, spec.stride, strict=True) if stride))


def bytes_for(spec: TensorSpec, elements: int) -> int:
    """Bytes of a number of elements of a tensor's type."""
    bits = stored_bits(spec.dtype)
    if bits is None:
        msg = f"the size of {spec.dtype} elements is not known"
        raise NoPriceError(msg)
    if isinstance(bits, int):  # whole-number arithmetic alone: formulas are derived by running it on expressions
        return (elements * bits + 7) // 8
    whole = spec.size_bytes if elements == spec.elements or spec.stored_bytes is not None else None
    if whole is None or not spec.elements:
        return ceil(elements * bits / 8)
    return -(-whole * elements // spec.elements)  # a block format may pad


def extent_bytes(spec: TensorSpec) -> int | None:
    """Bytes of memory from the start of a tensor's storage to its last element; None where it is not known."""
    bits = stored_bits(spec.dtype)
    stored = spec.stored_bytes
    if spec.stride is None or spec.is_packed:
        return spec.size_bytes
    if bits is None:
        return None
    if not spec.elements:
        return 0
    last = spec.storage_offset + sum((size - 1) * stride for size, stride in zip(spec.shape, spec.stride, strict=True))
    if last + 1 == spec.elements:
        return spec.size_bytes
    return ceil((last + 1) * bits / 8) if stored is None else -(-stored * (last + 1) // spec.elements)


def reads_of(call: OpSignature) -> tuple[int, ...]:
    """All of each input, once; a buffer given for the result is not read."""
    if not call.op.endswith("out"):
        return tuple(map(bytes_of, call.input_specs))
    return tuple(
        [
            0 if argument.name in _OUT else bytes_of(spec)
            for argument in call.arguments
            for spec in tensors_in(argument.value)
        ]
    )


def writes_of(call: OpSignature) -> tuple[int, ...]:
    """All of each output, once."""
    return tuple(map(bytes_of, call.output_specs))
