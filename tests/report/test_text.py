import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.report.text import OWN_CODE, aligned, coloured, fitted, plain

CODES = re.compile(rf"\x1b\[{OWN_CODE};\d+m")
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

    assert aligned(rows, paint=coloured) == f"\x1b[{OWN_CODE};1ma\x1b[{OWN_CODE};0m\nb"
    assert aligned(rows, paint=coloured, header=False) == "a\nb"


def test_no_rows_are_no_text() -> None:
    assert aligned([]) == ""


@pytest.mark.parametrize("style", ["bold", "dim", "red", "green"])
def test_a_style_is_switched_off_again(style: str) -> None:
    assert re.fullmatch(rf"\x1b\[{OWN_CODE};\d+mtext\x1b\[{OWN_CODE};0m", coloured("text", style))
    assert coloured("", style) == ""


LONG = "aten._scaled_dot_product_flash_attention_for_cpu.default"


def test_a_table_is_cut_to_the_terminal_in_its_longest_names() -> None:
    rows = [("op", "kind", "calls"), (LONG, "attention", "12"), ("aten.mm.default", "matmul", "1,024")]

    with fitted(50):
        header, cut, whole = aligned(rows, right=(2,)).splitlines()

    assert cut == "aten._scaled_dot_prod…pu.default  attention     12"
    assert max(map(len, (header, cut, whole))) <= 50
    assert whole.startswith("aten.mm.default ")


def test_numbers_are_never_cut() -> None:
    with fitted(10):
        assert aligned([("a", "1,234,567,890,123")], right=(1,)).endswith("1,234,567,890,123")


def test_without_a_terminal_nothing_is_cut() -> None:
    assert LONG in aligned([(LONG, "12")])


@given(tables, st.integers(min_value=1, max_value=60))
def test_what_fits_is_left_as_it_is(rows: list[list[str]], room: int) -> None:
    usual = aligned(rows)
    with fitted(room):
        found = aligned(rows)

    assert found == usual or max(map(len, usual.splitlines())) > room
