"""Aligned text: tables that read well in a terminal and in an issue somebody pastes them into."""

from collections.abc import Callable, Sequence

Paint = Callable[[str, str], str]  # text, style -> text

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32"}


def plain(text: str, style: str) -> str:  # noqa: ARG001 - one interface
    """Leave text as it is."""
    return text


def coloured(text: str, style: str) -> str:
    """Wrap text in the terminal codes of a style."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if text else text


def aligned(
    rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), header: bool = True, paint: Paint = plain
) -> str:
    """Rows of cells as lines with straight columns; the columns in `right` are flush right."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = "  ".join(cells).rstrip()
        lines.append(paint(line, "bold") if header and number == 0 else line)
    return "\n".join(lines)
