"""A copy of a nested result with other tensors in the same places."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from torchstone.capture.describe import is_plain

Exchange = Callable[[Any], Any]


def rebuilt(value: Any, exchange: Exchange) -> Any:
    """The same structure, each tensor and each object handed to `exchange`."""
    if is_plain(value):
        return value
    if isinstance(value, Tensor):
        return exchange(value)
    if type(value) in (list, tuple, set):
        return type(value)([rebuilt(item, exchange) for item in value])
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make([rebuilt(item, exchange) for item in value])
    if type(value) is dict:
        return {name: rebuilt(item, exchange) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: rebuilt(getattr(value, field.name, None), exchange) for field in fields(value)}
        return type(value)(**parts)
    return exchange(value)
