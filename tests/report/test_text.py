import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.report.text import aligned, coloured, plain

CODES = re.compile(r"\x1b\[\d+m")
words = st.text(alphabet="abcxyz0123456789", min_size=1, max_size=9)
tables = st.integers(min_value=1, max_value=4).flatmap(
    lambda width: st.lists(st.lists(words, min_size=width, max_size=width), min_size=1, max_size=5)
)


def test_columns_are_straight() -> None:
    text = aligned([("name", "calls"), ("a", "7"), ("longer", "1,024")], right=(1,))

    assert text.splitlines() == [
        "name    calls",
        "a           7",
        "longer  1,024",
    ]  # fmt: skip


@given(tables)
def test_every_column_begins_at_one_place(rows: list[list[str]]) -> None:
    starts = [[match.start() for match in re.finditer(r"\S+", line)] for line in aligned(rows).splitlines()]

    assert all(line == starts[0] for line in starts)


@given(tables)
def test_flush_right_columns_end_at_one_place(rows: list[list[str]]) -> None:
    every = range(len(rows[0]))
    ends = [[match.end() for match in re.finditer(r"\S+", line)] for line in aligned(rows, right=every).splitlines()]

    assert all(line == ends[0] for line in ends)


@given(tables)
def test_every_cell_is_shown(rows: list[list[str]]) -> None:
    assert [line.split() for line in aligned(rows).splitlines()] == rows


@given(tables)
def test_colour_changes_nothing_but_the_colour(rows: list[list[str]]) -> None:
    assert CODES.sub("", aligned(rows, paint=coloured)) == aligned(rows, paint=plain)


def test_no_line_ends_in_spaces() -> None:
    assert aligned([("a", "long text"), ("b", "")]).splitlines()[1] == "b"


def test_only_a_header_is_bold() -> None:
    rows = [("a",), ("b",)]

    assert aligned(rows, paint=coloured) == "\x1b[1ma\x1b[0m\nb"
    assert aligned(rows, paint=coloured, header=False) == "a\nb"


def test_no_rows_are_no_text() -> None:
    assert aligned([]) == ""


@pytest.mark.parametrize("style", ["bold", "dim", "red", "green"])
def test_a_style_is_switched_off_again(style: str) -> None:
    assert re.fullmatch(r"\x1b\[\d+mtext\x1b\[0m", coloured("text", style))
    assert coloured("", style) == ""
