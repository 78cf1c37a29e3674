"""Records to and from JSON files; every document names its schema and version."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypeVar

import msgspec

from torchstone.errors import NewerSchemaError, UnreadableFileError
from torchstone.record.base import Record
from torchstone.record.check import CheckComparison, CheckedModules, CheckResult
from torchstone.record.config import OpLog
from torchstone.record.cost import CostSweep, CostTable
from torchstone.record.formula import FormulaCostDocument, FormulaDatabase
from torchstone.record.memory import MemoryComparison, MemoryTimeline
from torchstone.record.reference import Checklist, Comparison, GoldenData
from torchstone.record.trace import Trace
from torchstone.record.unique import UniqueModules
from torchstone.record.vector import SweepHistory, SweepPlan, SweepRun, VectorFile

R = TypeVar("R", bound=Record)
Document = dict[str, object]
Upgrade = Callable[[Document], Document]

_PREFIX = "torchstone"
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


class Schema(Record, frozen=True, kw_only=True):
    """The name and newest version of one kind of document."""

    kind: str
    version: int

    @property
    def name(self) -> str:
        """As it stands in the document: torchstone/trace/1."""
        return f"{_PREFIX}/{self.kind}/{self.version}"


class _Head(Record, frozen=True, kw_only=True):
    schema: str = ""


_SCHEMA_OF: Mapping[type[Record], Schema] = {
    CheckComparison: Schema(kind="check_comparison", version=1),
    CheckResult: Schema(kind="check", version=1),
    CheckedModules: Schema(kind="unique_modules", version=1),
    Checklist: Schema(kind="checklist", version=1),
    Comparison: Schema(kind="comparison", version=1),
    CostSweep: Schema(kind="cost_sweep", version=1),
    CostTable: Schema(kind="cost", version=1),
    FormulaCostDocument: Schema(kind="cost_by_formula", version=1),
    FormulaDatabase: Schema(kind="module_db", version=1),
    GoldenData: Schema(kind="golden_data", version=1),
    MemoryComparison: Schema(kind="memory_comparison", version=1),
    MemoryTimeline: Schema(kind="memory_timeline", version=1),
    SweepHistory: Schema(kind="sweep_history", version=1),
    SweepPlan: Schema(kind="sweep_plan", version=1),
    SweepRun: Schema(kind="sweep_run", version=1),
    VectorFile: Schema(kind="vectors", version=1),
    OpLog: Schema(kind="op_log", version=1),
    Trace: Schema(kind="trace", version=2),
    UniqueModules: Schema(kind="unique_modules", version=1),
}
Upgrades = Mapping[tuple[str, int], Upgrade]


def _trace_from_1(document: Document) -> Document:
    """Version 1 wrote every copy out: its tables are complete and `repeats` is empty; `copies` is no longer read."""
    return document


_UPGRADES: Upgrades = {("trace", 1): _trace_from_1}  # (kind, old version) -> to the next version


def schema_of(record_type: type[Record]) -> Schema:
    """The schema that documents of a record type have."""
    return _SCHEMA_OF[record_type]


def encode(record: Record) -> bytes:
    """A record as a JSON document, its schema first."""
    schema = _SCHEMA_OF[type(record)]
    body = msgspec.json.encode(record)
    return b'{"schema":' + msgspec.json.encode(schema.name) + (b"," if body != b"{}" else b"") + body[1:]


def decode(text: bytes, record_type: type[R], *, origin: str) -> R:
    """A record from a JSON document; origin names it in errors."""
    return decode_as(text, record_type, _SCHEMA_OF[record_type], upgrades=_UPGRADES, origin=origin)


def decode_as(text: bytes, record_type: type[R], schema: Schema, *, upgrades: Upgrades, origin: str) -> R:
    """A record from a JSON document of this schema, or of an older version that the upgrades lead up from."""
    try:
        head = msgspec.json.decode(text, type=_Head)
        version = read_version(head.schema, schema.kind, newest=schema.version, origin=origin)
        if version == schema.version:
            return msgspec.json.decode(text, type=record_type)
        document = msgspec.json.decode(text)
        for old in range(version, schema.version):
            document = upgrades[schema.kind, old](document)
        return msgspec.convert(document, record_type, str_keys=True)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{origin} is not a readable {schema.kind} file ({error}); make it again"
        raise UnreadableFileError(msg) from error


def read_version(name: str, kind: str, *, newest: int, origin: str) -> int:
    """The version in a document's schema name; a newer one, or another kind, is refused."""
    prefix, _, digits = name.rpartition("/")
    if prefix != f"{_PREFIX}/{kind}" or not _VERSION.fullmatch(digits):
        found = f"its schema is {name[:80]!r}" if name else "it names no schema"
        msg = f"{origin} is not a torchstone {kind} file: {found}"
        raise UnreadableFileError(msg)
    if int(digits) > newest:
        msg = f"{origin} was written by a newer torchstone ({name}, this one reads up to {newest}); upgrade torchstone"
        raise NewerSchemaError(msg)
    return int(digits)


def load(path: Path, record_type: type[R]) -> R:
    """Read a record from a file."""
    try:
        text = path.read_bytes()
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror or error}"
        raise UnreadableFileError(msg) from error
    return decode(text, record_type, origin=str(path))


def save(path: Path, record: Record) -> None:
    """Write a record to a file."""
    write_atomically(path, encode(record) + b"\n")


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file as a whole: a reader sees the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".part", delete=False) as file:
        unfinished = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            unfinished.chmod(0o666 & ~_umask())
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
