import gzip
import json
import struct
from base64 import b64decode
from itertools import accumulate
from math import isnan
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.folders import folder_of
from tests.report.traces import one_op
from torchstone.report.section import SAFE_INTEGER, Chart, Column, ReportFolder, Series, Shape, Table, pack, pack_bytes


def test_a_folder_knows_its_files_by_name_and_by_pattern(tmp_path: Path) -> None:
    (tmp_path / "net_memory.json").write_text("{}")
    folder = ReportFolder(tmp_path)

    assert folder.has("net_memory.json")
    assert folder.has("*_memory.json")
    assert not folder.has("*_cost.json")
    assert not folder.has("trace.json")


def test_the_trace_is_read_once(tmp_path: Path) -> None:
    folder = ReportFolder(folder_of(one_op(), tmp_path))

    assert folder.trace is folder.trace


def test_memory_is_drawn_in_steps_unless_told_otherwise() -> None:
    chart = Chart(name="c", title="C", table="t", series=(Series(column="used", title="Used"),))

    assert chart.shape is Shape.STEPS


# --- pack() is read back here by a decoder of its own, and in the page by decode.js: both see the same vectors. ---


VECTORS = Path(__file__).parent / "vectors" / "columns.json"


def content_of(packed: str) -> bytes:
    return gzip.decompress(b64decode(packed))


class Reader:
    def __init__(self, packed: str) -> None:
        content = content_of(packed)
        (length,) = struct.unpack("<I", content[:4])
        self.header = json.loads(content[4 : 4 + length])
        self.rest = content[4 + length :]

    def planes(self, count: int, width: int) -> bytes:
        block, self.rest = self.rest[: count * width], self.rest[count * width :]
        return bytes(block[place * count + row] for row in range(count) for place in range(width))

    def integers(self, described: dict[str, Any]) -> list[int | None]:
        raw = self.planes(described["count"], described["width"])
        code = {1: "b", 2: "h", 4: "i", 8: "q"}[described["width"]]
        differences = struct.unpack(f"<{described['count']}{code}", raw)
        values: list[int | None] = [value * described["unit"] for value in accumulate(differences)]
        for row in self.integers(described["missing"]) if "missing" in described else ():
            assert row is not None
            values[row] = None
        return values

    def column(self, described: dict[str, Any]) -> list[Any]:
        match described["kind"]:
            case "text":
                return [self.header["strings"][place] for place in self.integers(described) if place is not None]
            case "float":
                values = struct.unpack(f"<{described['count']}d", self.planes(described["count"], 8))
                return [None if isnan(value) else value for value in values]
            case "lists":
                lengths, values_in = self.integers(described["lengths"]), self.integers(described["values"])
                return [[values_in.pop(0) for _ in range(length or 0)] for length in lengths]
            case _:
                return self.integers(described)


def round_trip(values: list[Any]) -> list[Any]:
    reader = Reader(pack(Table(name="t", columns=(Column(name="c", values=values),))))
    return reader.column(reader.header["columns"][0])


safe = st.integers(-SAFE_INTEGER, SAFE_INTEGER)


@settings(deadline=None)
@given(st.lists(st.none() | safe))
def test_integers_come_back_exactly_and_unknown_stays_unknown(values: list[int | None]) -> None:
    assert round_trip(values) == values


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1))
def test_texts_come_back_exactly(values: list[str]) -> None:
    assert round_trip(values) == values


@settings(deadline=None)
@given(st.lists(st.lists(safe), min_size=1))
def test_lists_come_back_exactly(values: list[list[int]]) -> None:
    assert round_trip(values) == values


@settings(deadline=None)
@given(st.lists(st.none() | st.floats(allow_nan=False)).filter(lambda values: any(v is not None for v in values)))
def test_floats_come_back_exactly(values: list[float | None]) -> None:
    assert round_trip(values) == values


def test_an_integer_too_large_for_the_page_becomes_the_nearest_float() -> None:
    assert round_trip([2**60, None]) == [float(2**60), None]


def test_a_column_of_multiples_is_kept_in_units() -> None:
    reader = Reader(pack(Table(name="t", columns=(Column(name="c", values=[1 << 40, 3 << 40]),))))

    assert (reader.header["columns"][0]["unit"], reader.header["columns"][0]["width"]) == (1 << 40, 1)


def test_the_same_table_packs_to_the_same_text() -> None:
    table = Table(name="t", columns=(Column(name="c", values=["b", "a", "b"]),))

    assert pack(table) == pack(table)


def test_a_million_steps_with_repeats_pack_into_a_small_part_of_their_size() -> None:
    values = [32 * ((row % 64) * 1000 + row // 64) for row in range(1_000_000)]
    packed = pack(Table(name="t", columns=(Column(name="c", values=values),)))

    assert len(packed) < 100_000, "the pattern repeats every 64 rows"


def test_the_vectors_that_the_page_reads_are_what_pack_makes() -> None:
    for case in json.loads(VECTORS.read_text()):
        columns = tuple(Column(name=name, values=values) for name, values in case["columns"].items())
        assert content_of(pack(Table(name="t", columns=columns))) == content_of(case["packed"])


def test_bytes_are_packed_without_a_time_stamp() -> None:
    assert content_of(pack_bytes(b"abc")) == b"abc"
    assert b64decode(pack_bytes(b"abc"))[4:8] == b"\0\0\0\0"
