"""`UnparsedElement`: arguments that the tracer of ttnn's early master files wrote as broken JSON -> what they say.

Each repair rewrites one spelling that JSON does not have and loses nothing. A text that still is not JSON stays as it
is, with the reason by name.
"""

import json
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from torchstone.record.config import Damage
from torchstone.record.json_value import value_from_json
from torchstone.record.value import Argument, Opaque, Value

UNPARSED = "UnparsedElement"
_NAME = re.compile(r'\{\s*"(?P<name>[^"]+)"\s*:')
_POINT = r'\{"x":-?\d+,\s*"y":-?\d+\}'
_RANGE = re.compile(rf"(?P<start>{_POINT}) - (?P<end>{_POINT})")
_GRID = re.compile(rf'"grid":\{{(?P<ranges>\[{_POINT} - {_POINT}\](?:,\s*\[{_POINT} - {_POINT}\])*)\}}')
_PAIR = re.compile(r'"(?P<name>compute_grid\w*)":(?P<x>\d+),(?P<y>\d+)(?=\s*[,}])')
_QUOTED_LIST = re.compile(r'(?P<before>:\s*)"(?P<list>\[\{".*\}\])"(?=\s*\}$)', re.DOTALL)


class DamageKind(StrEnum):
    """What was wrong with an argument."""

    RANGE = "core range written with a dash"
    GRID = "list of core ranges in braces"
    PAIR = "pair of numbers without brackets"
    QUOTED = "list inside quotes"
    ELIDED = "contents left out by the tracer as {...}"
    ELIDED_LIST = "list whose contents the tracer left out"
    UNSUPPORTED = "type that the tracer could not write"
    UNKNOWN = "not JSON"


NOT_RECORDED = (DamageKind.ELIDED_LIST, DamageKind.UNSUPPORTED)  # well-formed: the tracer itself says it is not there


def _ranges(found: re.Match[str]) -> str:
    return f'{{"start":{found["start"]},"end":{found["end"]}}}'


_REPAIRS: tuple[tuple[DamageKind, re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (DamageKind.GRID, _GRID, lambda found: f'"grid":[{found["ranges"].replace("[", "").replace("]", "")}]'),
    (DamageKind.RANGE, _RANGE, _ranges),
    (DamageKind.PAIR, _PAIR, lambda found: f'"{found["name"]}":[{found["x"]},{found["y"]}]'),
    (DamageKind.QUOTED, _QUOTED_LIST, lambda found: found["before"] + found["list"]),
)


def repaired_argument(element: Any, *, position: int) -> tuple[Argument, Damage]:
    """The argument that an UnparsedElement holds, and what was wrong with it."""
    text = element.get("element_info") if isinstance(element, dict) else None
    if not isinstance(text, str):
        return _unreadable(json.dumps(element, sort_keys=True), position)
    kinds, repaired = _repair(text)
    try:
        ((name, content),) = json.loads(repaired).items()
        value: Value = value_from_json(content)
    except (ValueError, AttributeError, RecursionError):
        return _unreadable(text, position)
    damage = Damage(where=name, kind=" and ".join(kinds) or DamageKind.UNKNOWN, text=text, repaired=True)
    return Argument(name=name, value=value, position=position), damage


def _unreadable(text: str, position: int) -> tuple[Argument, Damage]:
    found = _NAME.match(text) if "arg" in text else None
    name = found["name"] if found else f"arg{position}"
    kind = DamageKind.ELIDED if "{...}" in text else DamageKind.UNKNOWN
    raw = Opaque(class_name=UNPARSED, text=text)
    return Argument(name=name, value=raw, position=position), Damage(where=name, kind=kind, text=text)


def _repair(text: str) -> tuple[list[str], str]:
    kinds = []
    for kind, pattern, rewrite in _REPAIRS:
        text, times = pattern.subn(rewrite, text)
        if times:
            kinds.append(kind.value)
    return kinds, text


def unrecorded(argument: Argument) -> Damage | None:
    """The damage of an argument that is well-formed but says that the tracer could not write it."""
    match argument.value:
        case str(text) if "unsupported type" in text:
            return Damage(where=argument.name, kind=DamageKind.UNSUPPORTED, text=text)
        case str(text) if "{...}" in text:
            return Damage(where=argument.name, kind=DamageKind.ELIDED_LIST, text=text)
        case _:
            return None
