"""A vector in words."""

from torchstone.record.value import show_value
from torchstone.record.vector import Vector

_LONGEST = 300


def call_text(vector: Vector) -> str:
    """Its call in one line, arguments that are None left out; what was changed in a neighbour."""
    if vector.configuration is None:
        shown = ", ".join(f"{name}={value}" for name, value in vector.parameters.items())
    else:
        given = [one for one in vector.configuration.arguments if one.value is not None]
        shown = ", ".join(f"{one.name}={show_value(one.value)}" for one in given)
    text = f"{shown} [{vector.change}]" if vector.change else shown
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
