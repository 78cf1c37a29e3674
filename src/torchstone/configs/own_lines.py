"""torchstone's own exchange format: a heading, then one line for each run and each configuration, in one order.

Two databases with the same contents give the same bytes, so the files can be compared and kept under version control.
"""

from collections.abc import Iterable, Iterator

import msgspec

from torchstone.configs.exchange import Exported, Imported, Unread
from torchstone.errors import UnreadableFileError
from torchstone.record.base import Record
from torchstone.record.codec import Schema, read_version
from torchstone.record.config import SeenConfiguration, TraceRun, in_order

LINES_SCHEMA = Schema(kind="configurations", version=1)


class _Head(Record, frozen=True, kw_only=True):
    schema: str


class OwnLine(Record, frozen=True, kw_only=True):
    """A line after the heading: a run or a configuration."""

    run: TraceRun | None = None
    seen: SeenConfiguration | None = None


def is_own_text(text: str) -> bool:
    """Whether a text begins with the heading."""
    return text.startswith('{"schema":"torchstone/')


def export_lines(runs: Iterable[TraceRun], seen: Iterable[SeenConfiguration]) -> Exported:
    """A whole file."""
    lines = list(write_lines(runs, seen))
    configurations = sum(line.startswith(b'{"seen":') for line in lines)
    return Exported(text=b"".join(lines).decode(), configurations=configurations)


def write_lines(runs: Iterable[TraceRun], seen: Iterable[SeenConfiguration]) -> Iterator[bytes]:
    """The lines of a file."""
    yield msgspec.json.encode({"schema": LINES_SCHEMA.name}) + b"\n"
    for run in sorted(runs, key=lambda run: (run.source, run.run)):
        yield msgspec.json.encode(OwnLine(run=run)) + b"\n"
    for one in seen:
        yield msgspec.json.encode(OwnLine(seen=in_order(one))) + b"\n"


def read_lines(text: str, *, origin: str) -> Imported:
    """The runs and configurations of a file; a line that cannot be read is named, and the others are kept."""
    head, *lines = text.removesuffix("\n").split("\n")  # not splitlines: texts may hold other ends of lines
    try:
        schema = msgspec.json.decode(head, type=_Head).schema
    except msgspec.DecodeError as error:
        msg = f"{origin} has no readable heading ({error}); export it again"
        raise UnreadableFileError(msg) from error
    read_version(schema, LINES_SCHEMA.kind, newest=LINES_SCHEMA.version, origin=origin)
    decoder = msgspec.json.Decoder(OwnLine)
    runs: list[TraceRun] = []
    seen: list[SeenConfiguration] = []
    unread: list[Unread] = []
    for number, line in enumerate(lines, start=2):
        try:
            one = decoder.decode(line)
        except msgspec.DecodeError as error:
            unread.append(Unread(where=f"line {number}", reason=str(error)))
            continue
        if one.run is not None:
            runs.append(one.run)
        if one.seen is not None:
            seen.append(one.seen)
    return Imported(runs=tuple(runs), seen=tuple(seen), unread=tuple(unread))
