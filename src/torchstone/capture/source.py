"""Where a class is defined: file and lines, found without parsing the whole file."""

import ast
import inspect
import linecache
import re

from torchstone.record.module import Source


def source_of(cls: type) -> Source | None:
    """The file and lines of a class; None for one made at run time or in C."""
    known = _KNOWN.get(cls, _NOT_LOOKED_UP)
    if isinstance(known, str):
        known = _KNOWN[cls] = _look_up(cls)
    return known


_NOT_LOOKED_UP = ""
_KNOWN: dict[type, Source | None] = {}


def _look_up(cls: type) -> Source | None:
    try:
        file = inspect.getsourcefile(cls)
    except TypeError:
        return None
    if file is None:
        return None
    lines = linecache.getlines(file)
    heads = _heads(lines, cls.__qualname__.rpartition(".")[2])
    if not heads:
        return None
    first = _nearest(cls, heads)
    return Source(file=file, first_line=first + 1, last_line=_last_line(lines, first))


def _heads(lines: list[str], name: str) -> list[int]:
    head = re.compile(rf"\s*class {re.escape(name)}\b")
    return [number for number, line in enumerate(lines) if head.match(line)]


def _nearest(cls: type, heads: list[int]) -> int:
    """Of several classes of one name: the last that begins before the first method of this one."""
    first_method = min((f.__code__.co_firstlineno for f in vars(cls).values() if inspect.isfunction(f)), default=None)
    before = [head for head in heads if first_method is None or head < first_method]
    return before[-1] if before else heads[0]


def _last_line(lines: list[str], first: int) -> int:
    """The end of the block that begins at `first`; text that reaches the margin inside a string does not end it."""
    indent = len(lines[first]) - len(lines[first].lstrip())
    last = first + 1
    for number in range(first + 1, len(lines)):
        line = lines[number]
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if (
            len(line) - len(line.lstrip()) <= indent
            and not line.lstrip().startswith(")")
            and _parses(lines[first:last])
        ):
            break
        last = number + 1
    return last


def _parses(block: list[str]) -> bool:
    try:
        ast.parse("if True:\n" * block[0][:1].isspace() + "".join(block))
    except SyntaxError:
        return False
    return True
