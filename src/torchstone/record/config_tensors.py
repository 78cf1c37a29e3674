"""The tensors of a configuration, whichever tool wrote it: element type and shape."""

from collections.abc import Iterator

from torchstone.record.base import Record
from torchstone.record.config import Configuration
from torchstone.record.tensor import TensorSpec
from torchstone.record.ttnn_tensor import ttnn_tensor
from torchstone.record.value import Entries, Fields, Items, Value


class ConfigTensor(Record, frozen=True, kw_only=True):
    """A tensor among the arguments of a configuration."""

    argument: str
    dtype: str  # "float32", "BFLOAT8_B": as the op's own tool names it
    shape: tuple[int, ...] | None  # None: the file does not say


def tensors_of(configuration: Configuration) -> tuple[ConfigTensor, ...]:
    """The tensors among the arguments, in order: facts and aliases number them like this."""
    return tuple(
        ConfigTensor(argument=argument.name, dtype=dtype, shape=shape)
        for argument in configuration.arguments
        for dtype, shape in _tensors(argument.value)
    )


def _tensors(value: Value) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    match value:
        case TensorSpec(dtype=dtype, shape=shape):
            yield dtype, shape
        case Items(items=items):
            for item in items:
                yield from _tensors(item)
        case Entries(entries=entries):
            foreign = ttnn_tensor(value)
            if foreign is not None:
                yield foreign.dtype, foreign.shape
            else:
                for _, item in entries:
                    yield from _tensors(item)
        case Fields(fields=fields):
            foreign = ttnn_tensor(value)
            if foreign is not None:
                yield foreign.dtype, foreign.shape
            else:
                for _, item in fields:
                    yield from _tensors(item)
        case _:
            return
