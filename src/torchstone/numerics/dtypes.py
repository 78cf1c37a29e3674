"""Dtypes by their names: "float32", as torch writes them, without "torch."."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FLOAT, COMPLEX, BOOL, INTEGER = "float", "complex", "bool", "integer"


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype: float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    """The dtype of a name, with or without "torch."; a TypeError where this torch does not have it."""
    import torch

    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        msg = f"torch {torch.__version__} has no dtype {name!r}"
        raise TypeError(msg)
    return found


def kind_of(name: str) -> str:
    """What kind of number a dtype holds: float, complex, bool or integer (quantized ones among them)."""
    if name.startswith(("float", "bfloat")):
        return FLOAT
    if name.startswith("complex"):
        return COMPLEX
    return BOOL if name == "bool" else INTEGER
