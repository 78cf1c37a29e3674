"""The tensors of a configuration, whichever tool wrote it: element type, shape."""

from torchstone.record.base import Record
from torchstone.record.config import Configuration
from torchstone.record.value import tensors_in


class ConfigTensor(Record, frozen=True, kw_only=True):
    """A tensor among the arguments of a configuration."""

    argument: str
    dtype: str  # "float32", "BFLOAT8_B": as the op's own tool names it
    shape: tuple[int, ...] | None  # None: the file does not say


def tensors_of(configuration: Configuration) -> tuple[ConfigTensor, ...]:
    """The tensors among the arguments, in order."""
    return tuple(
        ConfigTensor(argument=argument.name, dtype=spec.dtype, shape=spec.shape)
        for argument in configuration.arguments
        for spec in tensors_in(argument.value)
    )
