"""What ttnn's tracers write, read without executing it: broken elements repaired, scalar texts, executions.

The importer of configurations and the loader of sweep modules read master files with these functions, so that both
see the same values. Needs the standard library alone: sweep modules run where torchstone itself need not be installed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# --- `UnparsedElement`: arguments that the tracer of early master files wrote as broken JSON ---
#
# Each repair rewrites one spelling that JSON does not have, and loses nothing. A text that is still not JSON is kept
# unchanged, with the reason.

UNPARSED = "UnparsedElement"
UNREADABLE = "__UNREADABLE__"  # a dictionary with this key holds the text of a value that could not be read

_NAME = re.compile(r'\{\s*"(?P<name>[^"]+)"\s*:')
_POINT = r'\{"x":-?\d+,\s*"y":-?\d+\}'
_RANGE = re.compile(rf"(?P<start>{_POINT}) - (?P<end>{_POINT})")
_GRID = re.compile(rf'"grid":\{{(?P<ranges>\[{_POINT} - {_POINT}\](?:,\s*\[{_POINT} - {_POINT}\])*)\}}')
_PAIR = re.compile(r'"(?P<name>compute_grid\w*)":(?P<x>\d+),(?P<y>\d+)(?=\s*[,}])')
_QUOTED_LIST = re.compile(r'(?P<before>:\s*)"(?P<list>\[\{".*\}\])"(?=\s*\}$)', re.DOTALL)


class DamageKind:
    """The kinds of damage of an argument; texts, because environments of devices have Pythons without StrEnum."""

    RANGE = "core range written with a dash"
    GRID = "list of core ranges in braces"
    PAIR = "pair of numbers without brackets"
    QUOTED = "list inside quotes"
    ELIDED = "contents left out by the tracer as {...}"
    ELIDED_LIST = "list whose contents the tracer left out"
    UNSUPPORTED = "type that the tracer could not write"
    UNKNOWN = "not JSON"


NOT_RECORDED = (DamageKind.ELIDED_LIST, DamageKind.UNSUPPORTED)  # well-formed: the tracer itself says it is missing


def _one_range(found: re.Match[str]) -> str:
    return f'{{"start":{found["start"]},"end":{found["end"]}}}'


_REPAIRS: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (DamageKind.GRID, _GRID, lambda found: f'"grid":[{found["ranges"].replace("[", "").replace("]", "")}]'),
    (DamageKind.RANGE, _RANGE, _one_range),
    (DamageKind.PAIR, _PAIR, lambda found: f'"{found["name"]}":[{found["x"]},{found["y"]}]'),
    (DamageKind.QUOTED, _QUOTED_LIST, lambda found: found["before"] + found["list"]),
)


@dataclass(frozen=True)
class Repaired:
    """One broken element: the argument that it holds, or its text where it cannot be read."""

    name: str
    kind: str  # what was wrong with it
    text: str
    value: Any = None
    is_read: bool = False


def repair(element: object, *, position: int) -> Repaired:
    """Read the contents of an UnparsedElement; `position` names an argument whose text does not name it."""
    text = element.get("element_info") if isinstance(element, dict) else None
    if not isinstance(text, str):
        return _unreadable(json.dumps(element, sort_keys=True), position)
    kinds, repaired = [], text
    for kind, pattern, rewrite in _REPAIRS:
        repaired, times = pattern.subn(rewrite, repaired)
        if times:
            kinds.append(kind)
    try:
        ((name, value),) = json.loads(repaired).items()
    except (ValueError, AttributeError, RecursionError):
        return _unreadable(text, position)
    return Repaired(name=name, kind=" and ".join(kinds) or DamageKind.UNKNOWN, text=text, value=value, is_read=True)


def _unreadable(text: str, position: int) -> Repaired:
    found = _NAME.match(text) if "arg" in text else None
    name = found["name"] if found else f"arg{position}"
    kind = DamageKind.ELIDED if "{...}" in text else DamageKind.UNKNOWN
    return Repaired(name=name, kind=kind, text=text)


def not_recorded(value: object) -> str | None:
    """Why a well-formed argument holds no value: the tracer says that it could not write it."""
    if not isinstance(value, str):
        return None
    if "unsupported type" in value:
        return DamageKind.UNSUPPORTED
    return DamageKind.ELIDED_LIST if "{...}" in value else None


def element_of(element: object, position: int) -> tuple[str, object]:
    """Name and content of one element of a list of arguments: `{"arg3": ...}`, or a bare value."""
    named = element if isinstance(element, dict) and len(element) == 1 else {f"arg{position}": element}
    ((name, value),) = named.items()
    return name, value


# --- Scalars of 2025, which are texts ---

_NOTHING = ("nullopt", "std::nullopt")


def literal(value: object) -> object:
    """A value of 2025: `"3"` is 3, `"[0, 2]"` a list, `"nullopt"` None; unreadable what the tracer could not write."""
    if not isinstance(value, str):
        return value
    if value in _NOTHING:
        return None
    if not_recorded(value) is not None:
        return {UNREADABLE: value}
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value


def is_unreadable(value: object) -> bool:
    """Whether a value stands for one that could not be read."""
    return isinstance(value, Mapping) and UNREADABLE in value


# --- Executions: where a configuration was seen, in the layouts of every era ---


def executions_of(entry: Mapping[str, Any], *, source: str) -> Iterator[dict[str, Any]]:
    """The executions of an entry in the newest layout; `source` is used where the entry names none."""
    if isinstance(entry.get("executions"), list):
        yield from (one for one in entry["executions"] if isinstance(one, dict))
        return
    contexts = [context for context in as_list(entry.get("contexts")) if isinstance(context, dict)]
    for context in contexts or [dict(entry)]:
        sources = as_list(context.get("source")) or [source]
        machines = as_list(context.get("machine_info")) or [None]
        for place, name in enumerate(sources):
            machine = machines[place] if len(machines) == len(sources) else machines[0]
            known = {"machine_info": machine} if machine is not None else {}
            yield {"source": str(name), **known}


def as_list(value: object) -> list[object]:
    """A list as it is, nothing as an empty one, anything else as its only item."""
    return value if isinstance(value, list) else [] if value is None else [value]
