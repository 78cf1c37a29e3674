"""One-line texts of ttnn objects, `MemoryConfig(memory_layout=..., buffer_type=...)`, -> values with named parts."""

import re
from collections.abc import Iterator

from torchstone.record.value import Fields, Value

_OBJECT = re.compile(r"(?P<name>[A-Za-z_][\w.:]*)\((?P<inner>.*)\)", re.DOTALL)
_PART = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_OPENING, _CLOSING = "([{<", ")]}>"


def value_of_text(text: str) -> Value:
    """A text as an object whose parts all have names, or as it stands."""
    found = _OBJECT.fullmatch(text.strip())
    if found is None:
        return text
    parts = [_PART.fullmatch(part) for part in _parts(found["inner"])]
    if not parts or any(part is None for part in parts):
        return text
    fields = tuple((part["name"], value_of_text(part["value"])) for part in parts if part is not None)
    return Fields(class_name=found["name"].replace("::", "."), fields=fields)


def _parts(text: str) -> Iterator[str]:
    """The pieces between the commas that are inside no bracket."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    rest = text[start:].strip()
    if rest or depth:
        yield rest if depth == 0 else ""  # a bracket that is never closed: no part has a name like this
