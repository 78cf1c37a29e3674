"""The numbers inside an op call: collect them, exchange them, or look at leading sizes as one."""

from collections.abc import Callable
from math import prod

import msgspec

from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Entries, Fields, Items, Value

_Visit = Callable[[int], int]
_Look = Callable[[TensorSpec], TensorSpec]


def numbers_in(signature: OpSignature) -> list[int]:
    """The sizes and whole-number arguments of a call, in order."""
    numbers: list[int] = []

    def note(number: int) -> int:
        numbers.append(number)
        return number

    with_numbers(signature, note)
    return numbers


def with_numbers(signature: OpSignature, visit: _Visit) -> OpSignature:
    """The same call with every size and whole-number argument exchanged; strides only tell which sizes are repeated."""

    def look(spec: TensorSpec) -> TensorSpec:
        strides = None if spec.stride is None else tuple(min(stride, 1) for stride in spec.stride)
        sizes = tuple(visit(size) for size in spec.shape)
        return msgspec.structs.replace(spec, shape=sizes, stride=strides, storage_offset=0)

    return _exchanged(signature, visit, look)


def flattened(signature: OpSignature, leading: tuple[int, ...]) -> OpSignature:
    """The same call with these leading sizes of every tensor taken as two: what is repeated, and what is there."""
    if not leading:
        return signature
    length = len(leading)

    def look(spec: TensorSpec) -> TensorSpec:
        if spec.shape[:length] != leading or spec.stride is None:
            return spec
        pairs = list(zip(leading, spec.stride, strict=False))
        repeated = prod(size for size, stride in pairs if stride == 0)
        there = prod(size for size, stride in pairs if stride)
        shape = (repeated, there, *spec.shape[length:])
        return msgspec.structs.replace(spec, shape=shape, stride=(0, 1, *spec.stride[length:]))

    return _exchanged(signature, lambda number: number, look)


def _exchanged(signature: OpSignature, visit: _Visit, look: _Look) -> OpSignature:
    arguments = tuple(
        Argument(name=argument.name, value=_value(argument.value, visit, look), position=argument.position)
        for argument in signature.arguments
    )
    return OpSignature(op=signature.op, arguments=arguments, output=_value(signature.output, visit, look))


def _value(value: Value, visit: _Visit, look: _Look) -> Value:
    if isinstance(value, bool):
        return value
    match value:
        case int():
            return visit(value)
        case TensorSpec():
            return look(value)
        case Items():
            return Items(kind=value.kind, items=tuple(_value(item, visit, look) for item in value.items))
        case Entries():
            return Entries(entries=tuple((key, _value(item, visit, look)) for key, item in value.entries))
        case Fields():
            parts = tuple((name, _value(item, visit, look)) for name, item in value.fields)
            return Fields(class_name=value.class_name, fields=parts)
        case _:
            return value
