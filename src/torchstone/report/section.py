"""A section of the report: its blocks, charts, compressed columns, and the module tree with repeated layers folded."""

import gzip
import sys
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import accumulate, chain, pairwise
from math import gcd
from pathlib import Path
from typing import Any

import msgspec

from torchstone.record import codec
from torchstone.record.base import Record
from torchstone.record.files import matching
from torchstone.record.trace import Trace
from torchstone.record.unique import Fold, module_folds

# Tables as compressed columns: what a page embeds and decodes only when it is looked at. A table becomes one text:
# base64(gzip(header length, header as JSON, column bytes)). In the column bytes - integers are divided by their
# common unit, kept as differences to the row before and byte-shuffled (first all lowest bytes, then all second bytes
# ...), which gzip packs several times better; - texts are numbers into the header's string table; - lists of integers
# are a column of lengths and a column of values; - a row whose value is not known (None) is named in a list of
# missing rows: the page sees NaN, never 0.


SAFE_INTEGER = 2**53 - 1  # the largest integer that a JavaScript number holds exactly
_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOAT_BYTES = 8
_LEVEL = 6  # level 9 takes three times as long and saves a few percent


class Shown(StrEnum):
    """How the page writes the values of a column."""

    TEXT = "text"
    COUNT = "count"
    BYTES = "bytes"
    READING = "reading"  # bytes that were read with three decimals of a MiB: no digit more is shown
    SECONDS = "seconds"
    NUMBER = "number"
    STATUS = "status"
    MODULE = "module"  # a row number of the trace's modules; shown as a link to it
    OP = "op"  # the name of an op; shown as a link to it
    ROW = "row"  # the number of an op of the timeline; shown as a link to it
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


def _describe(column: Column, strings: dict[str, int], parts: list[bytes]) -> dict[str, object]:
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


def _integers(values: Sequence[int | None], parts: list[bytes]) -> dict[str, object]:
    missing = [row for row, value in enumerate(values) if value is None]
    known = _filled(values) if missing else values
    unit = gcd(*known) or 1  # type: ignore[arg-type] # None was filled
    scaled: Iterable[int] = (value // unit for value in known) if unit > 1 else known  # type: ignore[assignment, operator]
    differences = _differences(scaled)
    width = _width(differences)
    parts.append(_shuffled(array(_CODES[width], differences), width))
    described: dict[str, object] = {"count": len(values), "width": width, "unit": unit}
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


def _floats(values: Sequence[float | None], parts: list[bytes]) -> dict[str, object]:
    parts.append(_shuffled(array("d", (float("nan") if value is None else value for value in values)), _FLOAT_BYTES))
    return {"count": len(values)}


def _shuffled(values: "array[int] | array[float]", width: int) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    raw = values.tobytes()
    return b"".join(raw[place::width] for place in range(width))


# What a chart shows, without a word about the library that draws it. The x axis is a row number of a table (an op
# call, say); each series is a column of that table. The page keeps every value and reduces it anew on each zoom to
# the first, lowest, highest and last of each pixel column, so that a peak is never lost. Marks, lines and bands are
# drawn exactly as given.


class Shape(StrEnum):
    """How two points are joined."""

    STEPS = "steps"  # a value holds until the next row
    LINE = "line"
    BARS = "bars"


class Series(Record, frozen=True, kw_only=True):
    """One line of a chart."""

    column: str  # of the chart's table
    title: str
    filled: bool = False


class Mark(Record, frozen=True, kw_only=True):
    """A point that is always shown, with its words: a peak, a failure."""

    row: int
    series: str  # the column it stands on
    text: str


class Line(Record, frozen=True, kw_only=True):
    """A level across the whole chart: a capacity."""

    value: float
    text: str


class Band(Record, frozen=True, kw_only=True):
    """A stretch of rows with a name: a layer, a pass."""

    first: int
    end: int
    text: str


class Chart(Record, frozen=True, kw_only=True):
    """One chart over one table."""

    name: str
    title: str
    table: str
    series: tuple[Series, ...]
    shape: Shape = Shape.STEPS
    shown: Shown = Shown.NUMBER  # the unit of the y axis
    x_title: str = "row"
    x_column: str = ""  # whose values stand at the x axis; "" for row numbers
    hover: tuple[str, ...] = ()  # columns of the table named when the pointer is on a point
    marks: tuple[Mark, ...] = ()
    lines: tuple[Line, ...] = ()
    bands: tuple[Band, ...] = ()
    tab: str = ""  # charts of one section with tabs are shown one at a time
    note: str = ""


# --- The interface of a section ---


TRACE_FILE = "trace.json"


class Tone(StrEnum):
    """How a card or a note is meant; shown by icon and word, never by colour alone."""

    PLAIN = "plain"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class RollUp(StrEnum):
    """What a folded row says about the layers inside it."""

    SUM = "sum"
    MAX = "max"
    SAME = "same"  # the value they share; unknown when they differ
    WORST = "worst"  # for statuses


class Card(Record, frozen=True, kw_only=True):
    """One headline number; the overview shows the cards of all sections."""

    title: str
    value: str
    detail: str = ""
    tone: Tone = Tone.PLAIN


class Banner(Record, frozen=True, kw_only=True):
    """A sentence that stands above everything else, on the overview and in its section."""

    text: str
    tone: Tone = Tone.PLAIN


class ModuleColumn(Record, frozen=True, kw_only=True):
    """A column that a section adds to the module tree; one value per module, None where it is not known."""

    name: str
    title: str
    values: Sequence[int | None] | Sequence[float | None] | Sequence[str]
    shown: Shown
    roll_up: RollUp = RollUp.SAME
    bar: bool = False  # draw the share of the root's value


class SectionView(Record, frozen=True, kw_only=True):
    """Everything a section shows; the page lists cards, charts and tables itself unless the section has a script."""

    name: str
    title: str
    document: dict[str, Any]  # the section in the JSON twin
    banner: Banner | None = None  # with one, the cards of the section are the first on the overview
    cards: tuple[Card, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    module_columns: tuple[ModuleColumn, ...] = ()
    notes: tuple[str, ...] = ()  # what is not known, in sentences
    subject: str = ""  # what the report is about, where no trace says it
    settings: dict[str, Any] = {}  # small values for the script
    script: str = ""  # a file in report/assets that draws the section; "" for the page's own listing


class ReportFolder:
    """The files of one report, each read at most once."""

    def __init__(self, path: Path, *, source: bool = True) -> None:
        self.path = path
        self.source = source  # False: name no file, line or command of the machine it was made on

    def has(self, name: str) -> bool:
        """Whether the folder holds a file; `*` stands for any part of its name."""
        if "*" not in name:
            return (self.path / name).is_file()
        return any(found.is_file() for found in matching(self.path, name))

    @cached_property
    def trace(self) -> Trace:
        """The capture that everything else refers to."""
        return codec.load(self.path / TRACE_FILE, Trace)

    @cached_property
    def folds(self) -> tuple[Fold, ...]:
        """The runs of equal layers in the trace's module tree."""
        return module_folds(self.trace)


class Section(Record, frozen=True, kw_only=True):
    """One row of the table of sections."""

    name: str  # its address in the page: #tab=name
    files: tuple[str, ...]  # shown when the folder holds all of them; `*` stands for any part of a name
    build: Callable[[ReportFolder], SectionView | None]  # None: nothing to show


# --- Rows of the module tree: one per module, and one for each run of repeated layers ---


FOLD = -1  # stands for a module number in the row of a run

_WORST_FIRST = ("failed", "crashed", "timed out", "out of memory", "ir_export_failed", "wrong", "compile error",
                "raised", "unsupported",
                "skipped", "not run", "never called", "inherited_success", "success", "passed", "ran")  # fmt: skip


class TreeLayout(Record, frozen=True, kw_only=True):
    """Rows in pre-order: one per module, and one before each run of equal siblings, which is their parent."""

    modules: tuple[int, ...]  # FOLD for the row of a run
    parents: tuple[int, ...]  # a row of this layout
    members: tuple[tuple[int, ...], ...]  # module numbers of a run; empty for a module


def lay_out_tree(parents: Sequence[int], runs: Sequence[Fold]) -> TreeLayout:
    """Put a row before each run."""
    starts = {fold.first: fold for fold in runs}
    fold_of = {member: fold.first for fold in runs for member in fold.members}
    row_of: dict[int, int] = {}
    fold_row_of: dict[int, int] = {}
    modules: list[int] = []
    tree_parents: list[int] = []
    members: list[tuple[int, ...]] = []
    for index, parent in enumerate(parents):
        above = row_of.get(parent, -1)
        if index in starts:
            fold_row_of[index] = len(modules)
            modules.append(FOLD)
            tree_parents.append(above)
            members.append(starts[index].members)
        row_of[index] = len(modules)
        modules.append(index)
        tree_parents.append(fold_row_of[fold_of[index]] if index in fold_of else above)
        members.append(())
    return TreeLayout(modules=tuple(modules), parents=tuple(tree_parents), members=tuple(members))


def spread(column: ModuleColumn, layout: TreeLayout) -> Column:
    """A module column with a value for each row of the tree."""
    values: Sequence[Any] = column.values
    spread_values = [
        values[module] if module != FOLD else _rolled_up([values[member] for member in members], column.roll_up)
        for module, members in zip(layout.modules, layout.members, strict=True)
    ]
    return Column(name=column.name, values=spread_values, title=column.title, shown=column.shown)


def _rolled_up(values: list[Any], roll_up: RollUp) -> Any:
    unknown = "" if isinstance(values[0], str) else None
    match roll_up:
        case RollUp.SAME:
            return values[0] if all(value == values[0] for value in values) else unknown
        case RollUp.WORST:
            return worst(values)
        case RollUp.SUM:
            return None if any(value is None for value in values) else sum(values)
        case RollUp.MAX:
            return None if any(value is None for value in values) else max(values)


def worst(statuses: Sequence[str]) -> str:
    """The status that matters most."""
    return min(statuses, key=_badness)


def _badness(status: str) -> int:
    return _WORST_FIRST.index(status) if status in _WORST_FIRST else 0
