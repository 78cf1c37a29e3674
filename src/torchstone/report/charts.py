"""What a chart shows, without a word about the library that draws it.

The x axis is a row number of a table (an op call, say); each series is a column of that table. The page keeps every
value and reduces it anew on each zoom to the first, lowest, highest and last of each pixel column, so that a peak is
never lost. Marks, lines and bands are drawn exactly as given.
"""

from enum import StrEnum

from torchstone.record.base import Record
from torchstone.report.columns import Shown


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
