"""Any JSON value <-> a record value; nothing is lost but the order of an object's keys, which has no meaning."""

from math import isfinite
from typing import Any

from torchstone.record.value import Atom, Entries, Fields, Items, Opaque, Value

_INT64 = 1 << 63


def value_from_json(json: Any) -> Value:
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


def entries_from_json(json: dict[str, Any]) -> Entries:
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
