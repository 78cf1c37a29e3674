"""The answer of one vector, as the parent reads it: plain JSON. Needs the standard library alone."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from math import isfinite
from typing import Any

_MOST_CHARACTERS = 500
_MOST_TRACEBACK = 8_000


def answer_of(
    outcome: str,
    detail: str,
    *,
    stage: str = "",
    verdict: Mapping[str, object] | None = None,
    error: BaseException | None = None,
) -> dict[str, object]:
    """How a vector ended: its outcome, one line about it, and the traceback of what was raised."""
    text = "" if error is None else "".join(traceback.format_exception(error))[-_MOST_TRACEBACK:]
    safe = None if verdict is None else json_safe(verdict)
    return {"outcome": outcome, "detail": detail, "stage": stage, "verdict": safe, "traceback": text}


def first_line(error: BaseException) -> str:
    """An exception in one line."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return (f"{type(error).__name__}: {line}" if line else type(error).__name__)[:_MOST_CHARACTERS]


def json_safe(value: object) -> Any:
    """The same value; a number that JSON cannot express becomes its name."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): json_safe(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
