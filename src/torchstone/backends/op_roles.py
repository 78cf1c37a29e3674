"""What kind of work an op does, read from its schema and tags."""

from enum import Enum
from functools import cache

import torch
from torch._ops import HigherOrderOperator, OpOverload

_MAKES_A_TENSOR = {"dtype", "layout", "device", "pin_memory"}  # torch's tensor options, as every factory takes them
_COPIES = "non_blocking"  # copies take the options, too, and say how to copy


class Role(str, Enum):  # noqa: UP042 - the environment of a backend may have Python 3.10
    """What an op does with values."""

    __str__ = str.__str__

    COMPUTE = "compute"
    VIEW = "view"  # looks at the memory of an argument
    FACTORY = "factory"  # makes a tensor without reading any values
    RANDOM = "random"  # draws from the random generator
    UNKNOWN = "unknown"  # a higher-order op has no schema


@cache
def role_of(op: OpOverload | HigherOrderOperator) -> Role:
    """The role of an op."""
    if isinstance(op, HigherOrderOperator):
        return Role.UNKNOWN
    schema = op._schema
    if torch.Tag.nondeterministic_seeded in op.tags:
        return Role.RANDOM
    if schema.returns and all(back.alias_info and not back.alias_info.is_write for back in schema.returns):
        return Role.VIEW
    names = {argument.name for argument in schema.arguments}
    takes_tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
    if not takes_tensors or (names >= _MAKES_A_TENSOR and _COPIES not in names):
        return Role.FACTORY
    return Role.COMPUTE
