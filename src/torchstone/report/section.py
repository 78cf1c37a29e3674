"""What a section of the report is: the interface that every part of torchstone fills."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from torchstone.record import codec
from torchstone.record.base import Record
from torchstone.record.trace import Trace
from torchstone.report.charts import Chart
from torchstone.report.columns import Shown, Table
from torchstone.report.folding import Fold, module_folds

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
        return any(found.is_file() for found in self.path.glob(name))

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
    build: Callable[[ReportFolder], SectionView]
