"""What an op's own schema says: argument names and defaults, what it writes, whether it reads values back."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload

from torchstone.backends.interception import op_name

MASKS = (torch.bool, torch.uint8)
_INDEX = torch.ops.aten.index.Tensor
_READS_VALUES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSchema:
    """The facts about one op overload that recording needs."""

    name: str
    argument_names: tuple[str, ...]
    defaults: dict[str, Any]
    written: tuple[str, ...]  # arguments changed in place
    renews_its_input: bool  # changes the shape or strides of its input in place, as squeeze_ does
    reads_values: bool  # its result, or the result's shape, is read from the values of a tensor


@cache
def schema_of(op: OpOverload | HigherOrderOperator) -> OpSchema:
    """Look an op up; a higher-order op has no schema and only a name."""
    if isinstance(op, HigherOrderOperator):
        return OpSchema(name=op_name(op), argument_names=(), defaults={}, written=(),
                        renews_its_input=False, reads_values=True)  # fmt: skip
    arguments = op._schema.arguments
    return OpSchema(
        name=op_name(op),
        argument_names=tuple(argument.name for argument in arguments),
        defaults={argument.name: argument.default_value for argument in arguments if argument.has_default_value()},
        written=tuple(argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write),
        renews_its_input=torch.Tag.inplace_view in op.tags,
        reads_values=any(tag in op.tags for tag in _READS_VALUES),
    )


def reads_values(op: OpOverload, schema: OpSchema, args: tuple[Any, ...]) -> bool:
    """Whether this call's result, or its shape, is read from values; picking by places, not by a mask, is not."""
    if op is _INDEX:
        return any(index is not None and index.dtype in MASKS for index in args[1])
    return schema.reads_values
