"""Arguments and results as they were passed: tensors, scalars and nested structures of them; and their JSON form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from msgspec.structs import replace

from torchstone.record.base import Record
from torchstone.record.tensor import TensorSpec

# Arguments and results as they were passed: tensors, scalars and nested structures of them. A value is plain where
# JSON is (None, bool, int, str, finite float) and one of the records below otherwise. Tensors inside a value are
# specs; which tensor it was in one call stands in the call, in the order of `tensors_in`.


class Atom(Record, frozen=True, kw_only=True, tag="atom"):
    """A scalar that JSON has no word for."""

    kind: str  # dtype, device, layout, memory_format, float, complex, slice, ellipsis, enum, symbol
    text: str


class Items(Record, frozen=True, kw_only=True, tag="items"):
    """A list, tuple or set."""

    kind: str  # list, tuple, set
    items: tuple[Value, ...] = ()


class Entries(Record, frozen=True, kw_only=True, tag="entries"):
    """A dictionary, in its own order."""

    entries: tuple[tuple[Value, Value], ...] = ()


class Fields(Record, frozen=True, kw_only=True, tag="fields"):
    """An object with named parts: a dataclass, a named tuple, a model output, a cache."""

    class_name: str
    fields: tuple[tuple[str, Value], ...] = ()


_NESTED = (Items, Entries, Fields)


class Opaque(Record, frozen=True, kw_only=True, tag="opaque"):
    """An object that was not looked into."""

    class_name: str
    text: str = ""


class Absent(Record, frozen=True, kw_only=True, tag="absent"):
    """There is no value: the call raised before it returned."""


Value = None | bool | int | float | str | TensorSpec | Atom | Items | Entries | Fields | Opaque | Absent


PLAIN_TYPES = frozenset({type(None), bool, int, float, str})  # of values that have nothing inside


class Argument(Record, frozen=True, kw_only=True):
    """One argument of a call under the name its signature gives it."""

    name: str
    value: Value
    position: int | None = None  # None: it was given by keyword


def tensors_in(value: Value) -> Sequence[TensorSpec]:
    """The tensors inside a value, in order; those in the keys of a dictionary do not count."""
    if isinstance(value, TensorSpec):
        return (value,)
    if not isinstance(value, _NESTED):
        return ()
    if isinstance(value, Items):
        return [spec for item in value.items if type(item) not in PLAIN_TYPES for spec in tensors_in(item)]
    parts = value.entries if isinstance(value, Entries) else value.fields
    return [spec for _, item in parts for spec in tensors_in(item)]


def map_values(value: Value, new: Callable[[Value], Value]) -> Value:
    """The value with each part that contains no others replaced, in the order of `tensors_in`."""
    match value:
        case Items(items=items):
            return replace(value, items=tuple(map_values(item, new) for item in items))
        case Entries(entries=entries):
            return replace(value, entries=tuple((key, map_values(item, new)) for key, item in entries))
        case Fields(fields=fields):
            return replace(value, fields=tuple((name, map_values(item, new)) for name, item in fields))
        case _:
            return new(value)


def replace_tensors(value: Value, new: Callable[[TensorSpec], Value]) -> Value:
    """The value with each tensor replaced, in the order of `tensors_in`."""
    return map_values(value, lambda part: new(part) if isinstance(part, TensorSpec) else part)


def show_value(value: Value) -> str:
    """A value in one line, tensors as `float32[1, 8]`."""
    match value:
        case TensorSpec():
            return str(value)
        case Atom(text=text):
            return text
        case Items(kind="tuple", items=items):
            inner = ", ".join(map(show_value, items))
            return f"({inner},)" if len(items) == 1 else f"({inner})"
        case Items(kind=kind, items=items):
            opening, closing = ("{", "}") if kind == "set" else ("[", "]")
            return opening + ", ".join(map(show_value, items)) + closing
        case Entries(entries=entries):
            return "{" + ", ".join(f"{show_value(key)}: {show_value(item)}" for key, item in entries) + "}"
        case Fields(class_name=name, fields=fields):
            inner = ", ".join(f"{field}={show_value(item)}" for field, item in fields)
            return f"{name.rpartition('.')[2]}({inner})"
        case Opaque(class_name=name):
            return f"<{name.rpartition('.')[2]}>"
        case Absent():
            return "nothing"
        case _:
            return repr(value)


# --- JSON values to record values and back; only the order of an object's keys is lost ---


_INT64 = 1 << 63


def value_from_json(json: object) -> Value:
    """A parsed JSON value as a record value."""
    match json:
        case None | bool() | str():
            return json
        case int():
            return json if -_INT64 <= json < _INT64 else Atom(kind="int", text=str(json))
        case float():
            return json if isfinite(json) else Atom(kind="float", text=str(json))
        case list():
            return Items(kind="list", items=tuple(map(value_from_json, json)))
        case dict():
            return entries_from_json(json)
        case _:
            msg = f"{type(json).__name__} is not a JSON value"
            raise TypeError(msg)


def entries_from_json(json: Mapping[str, object]) -> Entries:
    """A JSON object, its keys in order."""
    return Entries(entries=tuple((key, value_from_json(json[key])) for key in sorted(json)))


def json_from_value(value: Value) -> Any:
    """The JSON value that a record value was made from; a value that JSON has no word for becomes its text."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Atom(kind="int", text=text):
            return int(text)
        case Atom(kind="float", text=text):
            return float(text)
        case Atom(text=text) | Opaque(text=text):
            return text
        case Items(items=items):
            return [json_from_value(item) for item in items]
        case Entries(entries=entries):
            return {str(key): json_from_value(item) for key, item in entries}
        case Fields(class_name=name, fields=fields):
            return {"type": name} | {field: json_from_value(item) for field, item in fields}
        case _:
            return str(value)


def entry(value: Value, *path: str) -> Value:
    """What stands under these keys, one inside the other; None where there is nothing."""
    for key in path:
        if not isinstance(value, Entries):
            return None
        value = next((item for name, item in value.entries if name == key), None)
    return value
