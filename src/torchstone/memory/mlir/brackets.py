"""Split MLIR text where its brackets are closed."""

import re

_BRACKET_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|->|[][(){}<>,]')
_OPENING = frozenset("([{<")
_CLOSING = frozenset(")]}>")


def split_list(text: str) -> list[str] | None:
    """The items of a comma-separated list, None where brackets do not balance. Arrows are no brackets."""
    items, start, depth = [], 0, 0
    for match in _BRACKET_OR_COMMA.finditer(text):
        mark = match.group()
        if mark in _OPENING:
            depth += 1
        elif mark in _CLOSING:
            depth -= 1
            if depth < 0:
                return None
        elif mark == "," and depth == 0:
            items.append(text[start : match.start()].strip())
            start = match.end()
    if depth:
        return None
    last = text[start:].strip()
    return [*items, last] if last else items


def closing_bracket(text: str, opening: int) -> int:
    """Where the bracket at `opening` closes; -1 if it never does."""
    depth = 0
    for match in _BRACKET_OR_COMMA.finditer(text, opening):
        mark = match.group()
        if mark in _OPENING:
            depth += 1
        elif mark in _CLOSING:
            depth -= 1
            if depth == 0:
                return match.start()
    return -1
