"""The location of an op -> the module that it came from, where the compiler kept it."""

import re
from typing import NamedTuple

_MODULE = re.compile(r"^([A-Za-z_]\w*)\[([^\]]*)\]$")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


class Place(NamedTuple):
    """A module of the model, and the line that called it."""

    path: str
    class_name: str
    source: str  # file and line, "" where they are not known


def place_of(location: str) -> Place | None:
    """The innermost module in a location such as `7|Tail[tail]|ReLU[tail.relu]|net.py:106|forward|107|aten__relu`."""
    for text in _STRING.findall(location):
        parts = text.split("|")
        modules = [found for part in parts if (found := _MODULE.match(part)) is not None]
        if modules:
            after = parts[parts.index(modules[-1].group()) + 1 :]
            return Place(modules[-1].group(2), modules[-1].group(1), _source(after))
    return None


def plain_location(location: str) -> str:
    """A location that is one name, without its quotes; any other as it is printed."""
    found = _STRING.fullmatch(location)
    return found.group(1) if found else location


def _source(parts: list[str]) -> str:
    """`net.py:106`, `forward`, `107` -> net.py:107."""
    if len(parts) < 3 or not parts[2].isdecimal():  # noqa: PLR2004 - file, function, line
        return ""
    return f"{parts[0].rpartition(':')[0] or parts[0]}:{parts[2]}"
