"""Aligned text: tables and module trees that read well in a terminal and pasted into an issue."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from torchstone.units import many

if TYPE_CHECKING:
    from torchstone.record.trace import Trace
    from torchstone.report.view.modules import ModuleRow

Paint = Callable[[str, str], str]  # text, style -> text

_GAP = 2
_NARROWEST = 16  # no column of names is made narrower than this
_room: ContextVar[int | None] = ContextVar("room", default=None)  # columns of the terminal; None: as wide as it gets

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32"}
# In each code of torchstone itself, until it is written to a terminal: no file can contain it, so that a code from data
# is never taken for one of ours. It is a number, as an unknown parameter of a code is.
OWN_CODE = str(int.from_bytes(os.urandom(8), "big"))


def plain(text: str, style: str) -> str:  # noqa: ARG001 - one interface
    """Leave text as it is."""
    return text


def coloured(text: str, style: str) -> str:
    """Wrap text in the terminal codes of a style."""
    return f"\x1b[{OWN_CODE};{_CODES[style]}m{text}\x1b[{OWN_CODE};0m" if text else text


@contextmanager
def fitted(columns: int) -> Iterator[None]:
    """While open, tables that are wider than a terminal have their longest names cut in the middle."""
    before = _room.set(columns)
    try:
        yield
    finally:
        _room.reset(before)


def aligned(
    rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), header: bool = True, paint: Paint = plain
) -> str:
    """Rows of cells as lines with straight columns; the columns in `right` are flush right."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    room = _room.get()
    if room is not None:
        widths = _narrowed(widths, room, [column for column in range(len(widths)) if column not in right])
    lines = []
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if column in right else _cut(cell, width).ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = "  ".join(cells).rstrip()
        lines.append(paint(line, "bold") if header and number == 0 else line)
    return "\n".join(lines)


def _narrowed(widths: Sequence[int], room: int, names: Collection[int]) -> list[int]:
    """Widths that fit into the room, as far as columns of names can give it: the widest one first."""
    narrowed = list(widths)
    while sum(narrowed) + _GAP * (len(narrowed) - 1) > room:
        widest = max(names, key=narrowed.__getitem__, default=None)
        if widest is None or narrowed[widest] <= _NARROWEST:
            break
        narrowed[widest] -= 1
    return narrowed


def _cut(cell: str, width: int) -> str:
    """The beginning and the end of a cell that is too long; more of the beginning, which distinguishes most names."""
    if len(cell) <= width:
        return cell
    begin = 2 * width // 3
    return f"{cell[:begin]}…{cell[len(cell) - (width - begin - 1) :]}"


def tree_labels(shown: "Sequence[ModuleRow]", every: "Sequence[ModuleRow]", *, fold: bool) -> list[str]:
    """The names of the shown rows with the branches of the tree before them; folded ones say from where to where."""
    last_names = {row.repeat_of: row.name for row in every}
    last_child: dict[int, int] = {row.parent: row.index for row in shown}
    ancestors: dict[int, str] = {}
    labels = []
    for row in shown:
        before = ancestors.get(row.parent, "")
        is_last = last_child[row.parent] == row.index
        ancestors[row.index] = before + ("" if row.depth == 0 else "   " if is_last else "│  ")
        branch = "" if row.depth == 0 else "└─ " if is_last else "├─ "
        labels.append(before + branch + _name(row, last_names[row.repeat_of], fold=fold))
    return labels


def _name(row: "ModuleRow", last_name: str, *, fold: bool) -> str:
    if row.depth == 0:
        return "(root)"
    return row.name if row.repeats == 1 or not fold else f"{row.name}..{last_name}"


def paint_label(label: str, paint: Paint) -> str:
    """A label in front of a value; all are of one width, so that codes do not disturb the columns."""
    return paint(label.ljust(10), "dim")


def failure_text(trace: "Trace", paint: Paint = plain) -> str:
    """Where and how the forward pass ended early; empty when it did not."""
    failure = trace.failure
    if failure is None:
        return ""
    where = f"in {failure.module or 'the root module'}" + (f" at {failure.op}" if failure.op else "")
    lines = [paint(f"forward failed {where}: {failure.error}", "red")]
    if failure.arguments:
        lines.append(f"  {failure.op}({failure.arguments})")
    if failure.location:
        lines.append(f"  {failure.location}")
    lines.append(f"  {many(trace.size.op, 'op call')} ran before it")
    return "\n".join(lines)
