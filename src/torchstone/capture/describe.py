"""Torch and Python values -> record values; made canonical here and nowhere else."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from math import isfinite
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Atom, Entries, Fields, Items, Opaque, Value

_DEEPEST = 8  # objects inside objects: a cache holds layers that hold tensors
_THIS_LAYER = "this layer"  # equal layers have equal descriptions, whatever their numbers
_INT64 = 1 << 63
_CPU = torch.device("cpu")
_TORCH_ATOMS = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PLAIN = (int, float, bool, str, bytes, complex, type(None), Enum, torch.dtype, torch.device, torch.layout, torch.Size)
_WITH_A_NAME = (type, FunctionType, BuiltinFunctionType)
_NEVER_LOOKED_INTO = (nn.Module, type, FunctionType, MethodType, BuiltinFunctionType, torch.Generator)


def class_path(cls: type) -> str:
    """The full name of a class: package.module.Class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def spec_of(tensor: Tensor, *, stand_in: bool = False) -> TensorSpec:
    """Describe a tensor; with stand_in a meta device is written as the cpu it stands for."""
    device = tensor.device
    strided = tensor.layout == torch.strided
    kind = type(tensor)
    return TensorSpec(
        shape=tuple(map(int, tensor.shape)),
        dtype=_name(tensor.dtype),
        stride=tuple(map(int, tensor.stride())) if strided else None,
        storage_offset=int(tensor.storage_offset()) if strided else 0,
        device=_name(_CPU if stand_in and device.type == "meta" else device),
        layout=_name(tensor.layout),
        requires_grad=tensor.requires_grad,
        subclass=""
        if kind.__module__.startswith(("torch._subclasses", "torch.nn.")) or kind is Tensor
        else class_path(kind),
        stored_bytes=stored_bytes(tensor),
    )


@cache
def _name(value: torch.dtype | torch.device | torch.layout) -> str:
    """The name of one of the few values there are of these."""
    return str(value).removeprefix("torch.")


def tensors_inside(tensor: Any) -> list[tuple[str, Tensor]]:
    """The tensors that a subclass is made of, such as packed values and their scales; none for any other tensor."""
    if not is_traceable_wrapper_subclass(tensor):
        return []
    names, _ = tensor.__tensor_flatten__()
    return [(name, getattr(tensor, name)) for name in names]


def stored_bytes(tensor: Tensor) -> int | None:
    """Bytes of the tensors that a subclass is made of; None for any other tensor, and where a size is not known."""
    inside = tensors_inside(tensor)
    sizes = [spec_of(part).size_bytes for _, part in inside]
    return sum(size or 0 for size in sizes) if inside and None not in sizes else None


def copied(tensor: Tensor) -> Tensor:
    """A tensor of the same values that has no part in what happens to the given one.

    A class of packed values may copy into plain ones, as quanto's do: then the copy is made of copies of its parts.
    """
    copy = tensor.detach().clone()
    parts = [] if type(copy) is type(tensor) else tensors_inside(tensor)
    if parts:
        whole: Any = tensor
        _, context = whole.__tensor_flatten__()
        made = {name: copied(part) for name, part in parts}
        copy = whole.__tensor_unflatten__(made, context, tensor.size(), tensor.stride())
    return copy.requires_grad_(tensor.requires_grad)


class Describer:
    """Describes values and hands each tensor met to `tensors`, in the order the record keeps them."""

    def __init__(
        self,
        *,
        stand_in: bool = False,
        layer: int | None = None,
        spec: Callable[[Tensor], TensorSpec] | None = None,
    ) -> None:
        """With a layer, only that layer's entry of a cache is described: the others are not the call's business."""
        self.tensors: list[Tensor] = []
        self._spec = spec or partial(spec_of, stand_in=stand_in)
        self._stand_in = stand_in
        self._layer = layer
        self._open: set[int] = set()  # objects being described: one inside itself is not followed

    def describe(self, value: object, depth: int = 0) -> Value:
        """One value with everything in it."""
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return self._spec(value)
        kind = type(value)
        if (kind is list or kind is tuple) and depth <= _DEEPEST and all(map(_is_int, value)):  # type: ignore[call-overload]
            return Items(kind=kind.__name__, items=tuple(map(describe_plain, value)))  # type: ignore[call-overload]
        plain = describe_plain(value, stand_in=self._stand_in)
        if not isinstance(plain, Opaque):
            return plain
        if id(value) in self._open or depth > _DEEPEST:
            return plain
        self._open.add(id(value))
        try:
            return self._describe_inside(value, plain, depth + 1)
        finally:
            self._open.discard(id(value))

    def _describe_inside(self, value: object, plain: Opaque, depth: int) -> Value:
        if is_dataclass(value) and not isinstance(value, type):
            parts = {field.name: getattr(value, field.name, None) for field in fields(value)}
            return self._fields(value, parts, depth)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._fields(value, dict(zip(value._fields, value, strict=True)), depth)
        if isinstance(value, list | tuple | set | frozenset):
            kind = "list" if isinstance(value, list) else "tuple" if isinstance(value, tuple) else "set"
            members = sorted(value, key=repr) if kind == "set" else value
            return Items(kind=kind, items=tuple(self.describe(item, depth) for item in members))
        if isinstance(value, Mapping):
            return Entries(
                entries=tuple((describe_plain(key), self.describe(item, depth)) for key, item in value.items())
            )
        if isinstance(value, _NEVER_LOOKED_INTO) or not hasattr(value, "__dict__"):
            return plain
        return self._object(value, plain, depth)

    def _object(self, value: object, plain: Opaque, depth: int) -> Value:
        """An object is looked into for the tensors it carries; without any it is only named."""
        seen = len(self.tensors)
        parts = {name: self._own_entry(part) for name, part in vars(value).items()}
        looked_into = self._fields(value, parts, depth)
        return looked_into if len(self.tensors) > seen or self._layer is not None else plain

    def _own_entry(self, part: object) -> object:
        """Of a list or dictionary with an entry for each layer, the one that counts."""
        if self._layer is None:
            return part
        if isinstance(part, list) and len(part) > self._layer and not all(map(is_plain, part)):
            return {_THIS_LAYER: part[self._layer]}
        if isinstance(part, dict) and part and all(type(name) is int for name in part):
            return {_THIS_LAYER: part[self._layer]} if self._layer in part else {}
        return part

    def _fields(self, value: object, parts: Mapping[str, object], depth: int) -> Fields:
        return Fields(
            class_name=class_path(type(value)),
            fields=tuple((str(name), self.describe(part, depth)) for name, part in parts.items()),
        )


def _is_int(value: object) -> bool:
    return type(value) is int


def is_plain(value: object) -> bool:
    """Whether a value has nothing inside and never changes."""
    kind = type(value)
    known = _IS_PLAIN.get(kind)
    return is_plain_type(kind) if known is None else known


def is_plain_type(kind: type) -> bool:
    """Whether values of a type have nothing inside and never change."""
    known = _IS_PLAIN.get(kind)
    if known is None:
        known = _IS_PLAIN[kind] = issubclass(kind, _PLAIN)
    return known


_IS_PLAIN: dict[type, bool] = {}


def describe_plain(value: Any, *, stand_in: bool = False) -> Value:
    """A value that has nothing inside; anything else is Opaque."""
    kind = type(value)  # asking the value itself can be slow, as configurations look every question up
    if value is None or kind is bool:
        return value
    if issubclass(kind, Enum):
        return Atom(kind="enum", text=f"{kind.__qualname__}.{value.name}")
    if issubclass(kind, int):
        return int(value) if -_INT64 <= value < _INT64 else Atom(kind="int", text=str(value))
    if issubclass(kind, float):
        return float(value) if isfinite(value) else Atom(kind="float", text=str(float(value)))
    if issubclass(kind, str):
        return str(value).encode("utf-8", "backslashreplace").decode()
    return _describe_atom(value, kind, stand_in=stand_in)


def _describe_atom(value: Any, kind: type, *, stand_in: bool) -> Value:
    named = _TORCH_ATOMS.get(kind)
    if named is not None:
        text = str(value).removeprefix("torch.")
        return Atom(kind=named, text="cpu" if stand_in and named == "device" and text == "meta" else text)
    if issubclass(kind, _SYMBOLS):
        return Atom(kind="symbol", text=str(value))
    if issubclass(kind, complex):
        return Atom(kind="complex", text=str(value))
    if kind is slice:
        return Atom(kind="slice", text=f"{value.start}:{value.stop}:{value.step}")
    if value is Ellipsis:
        return Atom(kind="ellipsis", text="...")
    name = value.__qualname__ if issubclass(kind, _WITH_A_NAME) else ""
    return Opaque(class_name=class_path(kind), text=name)


def rebuilt(value: Any, exchange: Callable[[object], object]) -> Any:
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
