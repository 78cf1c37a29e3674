"""Small HTML tables for notebooks: what `_repr_html_` of the main results returns. Everything is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from torchstone.units import many

MOST_ROWS = 30


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, notes: Sequence[str] = ()) -> str:
    """A heading, a table of the first rows, and how many rows are not shown."""
    shown = list(rows)
    more = len(shown) - MOST_ROWS
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in shown[:MOST_ROWS])
    footer = [*notes, *([many(more, "more row")] if more > 0 else [])]
    return (
        f"<div><p><b>{escape(title)}</b></p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        + "".join(f"<p>{escape(note)}</p>" for note in footer)
        + "</div>"
    )
