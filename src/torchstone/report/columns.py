"""Tables as compressed columns: what a page embeds and decodes only when it is looked at.

A table becomes one text: base64(gzip(header length, header as JSON, column bytes)). In the column bytes
- integers are divided by their common unit, kept as differences to the row before and byte-shuffled
  (first all lowest bytes, then all second bytes ...), which gzip packs several times better;
- texts are numbers into the header's string table;
- lists of integers are a column of lengths and a column of values;
- a row whose value is not known (None) is named in a list of missing rows: the page sees NaN, never 0.
"""

import gzip
import sys
from array import array
from base64 import b64encode
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import accumulate, chain, pairwise
from math import gcd
from typing import Any

import msgspec

from torchstone.record.base import Record

SAFE_INTEGER = 2**53 - 1  # the largest integer that a JavaScript number holds exactly
_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOAT_BYTES = 8
_LEVEL = 6  # level 9 takes three times as long and saves a few percent


class Shown(StrEnum):
    """How the page writes the values of a column."""

    TEXT = "text"
    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "seconds"
    NUMBER = "number"
    STATUS = "status"
    MODULE = "module"  # a row number of the trace's modules; shown as a link to it
    OP = "op"  # the name of an op; shown as a link to it
    HIDDEN = "hidden"  # for scripts only


class Column(Record, frozen=True, kw_only=True):
    """One named column; None is a value that is not known."""

    name: str
    values: Sequence[int | None] | Sequence[float | None] | Sequence[str] | Sequence[Sequence[int]]
    title: str = ""
    shown: Shown = Shown.HIDDEN


class Table(Record, frozen=True, kw_only=True):
    """Columns of equal length."""

    name: str
    columns: tuple[Column, ...]
    title: str = ""  # "" keeps it out of the page's own listing: it is for scripts
    empty: str = "Nothing here."  # the sentence shown instead of a table without rows

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.columns[0].values) if self.columns else 0


def pack(table: Table) -> str:
    """A table as the text that the page decodes."""
    strings: dict[str, int] = {}
    parts: list[bytes] = []
    described = [_describe(column, strings, parts) for column in table.columns]
    header = msgspec.json.encode({"rows": table.rows, "columns": described, "strings": list(strings)})
    content = b"".join([len(header).to_bytes(4, "little"), header, *parts])
    return pack_bytes(content)


def pack_bytes(content: bytes) -> str:
    """Bytes as base64 of gzip, the same text every time."""
    return b64encode(gzip.compress(content, compresslevel=_LEVEL, mtime=0)).decode("ascii")


def _describe(column: Column, strings: dict[str, int], parts: list[bytes]) -> dict[str, Any]:
    values: Sequence[Any] = column.values
    sample = next((value for value in values if value is not None), 0)
    described = {"name": column.name, "title": column.title, "shown": column.shown.value}
    match sample:
        case str():
            ids = [strings.setdefault(value, len(strings)) for value in values]
            return described | {"kind": "text"} | _integers(ids, parts)
        case float():
            return described | {"kind": "float"} | _floats(values, parts)
        case int():
            if any(value is not None and abs(value) > SAFE_INTEGER for value in values):
                return described | {"kind": "float"} | _floats(values, parts)
            return described | {"kind": "integer"} | _integers(values, parts)
        case _:
            lengths = _integers([len(value) for value in values], parts)
            return described | {"kind": "lists", "lengths": lengths, "values": _integers([*chain(*values)], parts)}


def _integers(values: Sequence[int | None], parts: list[bytes]) -> dict[str, Any]:
    missing = [row for row, value in enumerate(values) if value is None]
    known = _filled(values) if missing else values
    unit = gcd(*known) or 1  # type: ignore[arg-type] # None was filled
    scaled: Iterable[int] = (value // unit for value in known) if unit > 1 else known  # type: ignore[assignment, operator]
    differences = _differences(scaled)
    width = _width(differences)
    parts.append(_shuffled(array(_CODES[width], differences), width))
    described: dict[str, Any] = {"count": len(values), "width": width, "unit": unit}
    return described | {"missing": _integers(missing, parts)} if missing else described


def _filled(values: Sequence[int | None]) -> list[int]:
    return list(accumulate(values, lambda last, value: last if value is None else value, initial=0))[1:]


def _differences(values: Iterable[int]) -> list[int]:
    return [after - before for before, after in pairwise(chain([0], values))]


def _width(differences: list[int]) -> int:
    if not differences:
        return 1
    low, high = min(differences), max(differences)
    return next(width for width in _CODES if -(1 << (8 * width - 1)) <= low and high < 1 << (8 * width - 1))


def _floats(values: Sequence[float | None], parts: list[bytes]) -> dict[str, Any]:
    parts.append(_shuffled(array("d", (float("nan") if value is None else value for value in values)), _FLOAT_BYTES))
    return {"count": len(values)}


def _shuffled(values: "array[Any]", width: int) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    raw = values.tobytes()
    return b"".join(raw[place::width] for place in range(width))
