"""Examples of docstrings as code on the documentation site: Markdown would take `>>>` for quotations."""

from typing import Any

import griffe


class FencedExamples(griffe.Extension):  # type: ignore[misc]  # it is installed for the site only
    """Puts the examples of every docstring into a block of code."""

    def on_object(self, *, obj: Any, **others: object) -> None:
        """Rewrite one docstring."""
        del others
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring with its examples, from `>>>` to the next empty line, between fences."""
    lines: list[str] = []
    inside = False
    for line in [*text.splitlines(), ""]:
        if line.startswith(">>>") and not inside:
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines).rstrip()
