"""What the child side says, so that JSON can carry it. Needs the standard library alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

_MOST_CHARACTERS = 500


def first_line(error: BaseException) -> str:
    """An exception in one line."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return (f"{type(error).__name__}: {line}" if line else type(error).__name__)[:_MOST_CHARACTERS]


def json_safe(value: Any) -> Any:
    """The same value; a number that JSON does not have becomes its name."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): json_safe(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
