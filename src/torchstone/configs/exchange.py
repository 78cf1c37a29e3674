"""The results of importers and exporters; torchstone's own exchange format; op logs as configurations."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from torchstone.errors import UnreadableFileError
from torchstone.record.base import Record, Schema
from torchstone.record.codec import decode, read_version
from torchstone.record.config import Occurrence, OpLog, SeenConfiguration, TracedSource, TraceRun, in_order
from torchstone.record.value import Argument, Entries, Value, entries_from_json

# --- Results of importers and exporters ---

JsonObject = dict[str, Any]  # a parsed JSON object of another tool; its values are checked where they are read

_MOST_DIGITS = 9  # of a position: what has more is a name
RUN_CHARACTERS = 16  # of the digest that names a run without a name: enough to distinguish versions of a file


class Unread(Record, frozen=True, kw_only=True):
    """A part of a file that could not be read as a configuration; the file itself is not changed."""

    where: str  # "line 12", "ttnn::add, configuration 3"
    reason: str


class Imported(Record, frozen=True, kw_only=True):
    """The configurations of one file or folder."""

    runs: tuple[TraceRun, ...]
    seen: tuple[SeenConfiguration, ...]
    unread: tuple[Unread, ...] = ()


class Exported(Record, frozen=True, kw_only=True):
    """The text of a file, and what is not in it."""

    text: str
    configurations: int
    left_out: dict[str, int] = {}  # configurations that the format cannot express, by their origin or the reason


def named_argument(name: str, value: Value) -> Argument:
    """An argument of a file in which positional ones are named arg0, arg1, ... and the others by their names."""
    digits = name.removeprefix("arg")
    positional = name.startswith("arg") and digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
    return Argument(name=name, value=value, position=int(digits) if positional else None)


def argument_order(argument: Argument) -> tuple[bool, int, str]:
    """Sort key: positional arguments by position, then the others by name."""
    return argument.position is None, argument.position or 0, argument.name


def count_calls(calls: Iterable[SeenConfiguration]) -> tuple[SeenConfiguration, ...]:
    """Group single calls into configurations, with the number of calls at each place."""
    together: dict[str, list[SeenConfiguration]] = {}
    for call in calls:
        together.setdefault(call.key, []).append(call)
    return tuple(_counted(same) for same in together.values())


def _counted(calls: list[SeenConfiguration]) -> SeenConfiguration:
    places: dict[bytes, tuple[Occurrence, int]] = {}
    for call in calls:
        for place in call.occurrences:
            text = msgspec.json.encode(place)
            places[text] = (place, places[text][1] + 1 if text in places else 1)
    return in_order(
        SeenConfiguration(
            configuration=calls[0].configuration,
            occurrences=tuple(msgspec.structs.replace(place, count=count) for place, count in places.values()),
            facts=tuple(fact for call in calls for fact in call.facts),
            foreign=tuple(name for call in calls for name in call.foreign),
            damage=tuple(broken for call in calls for broken in call.damage),
        )
    )


# --- Exchange format: a heading, then one line for each run and each configuration, sorted ---
#
# Two databases with the same contents give the same bytes, so the files can be compared and versioned.


LINES_SCHEMA = Schema(kind="configurations", version=1)


class _Head(Record, frozen=True, kw_only=True):
    schema: str


class ExchangeLine(Record, frozen=True, kw_only=True):
    """A line after the heading: a run or a configuration."""

    run: TraceRun | None = None
    seen: SeenConfiguration | None = None


def is_exchange_text(text: str) -> bool:
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
        yield msgspec.json.encode(ExchangeLine(run=run)) + b"\n"
    for one in seen:
        yield msgspec.json.encode(ExchangeLine(seen=in_order(one))) + b"\n"


def read_lines(text: str, *, origin: str) -> Imported:
    """The runs and configurations of a file; a line that cannot be read is reported, and the others are returned."""
    head, *lines = text.removesuffix("\n").split("\n")  # not splitlines: texts may contain other line separators
    try:
        schema = msgspec.json.decode(head, type=_Head).schema
    except msgspec.DecodeError as error:
        msg = f"{origin} has no readable heading ({error}); export it again"
        raise UnreadableFileError(msg) from error
    read_version(schema, LINES_SCHEMA.kind, newest=LINES_SCHEMA.version, origin=origin)
    decoder = msgspec.json.Decoder(ExchangeLine)
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


# --- Op logs: what one `torchstone trace` recorded ---


_BEGINNING = '{"schema":"torchstone/op_log/'


def is_raw_trace(text: str) -> bool:
    """Whether a text is a file of `torchstone trace --store`."""
    return text.startswith(_BEGINNING)


def read_raw_trace(text: str, *, origin: str, keep_failing: bool = False) -> Imported:
    """The configurations of a stored trace."""
    return log_configurations(decode(text.encode(), OpLog, origin=origin), keep_failing=keep_failing)


def _peaks(source: TracedSource) -> Entries | None:
    """The peak of each memory of the device, in bytes per bank, with its operation and line."""
    if not source.peaks:
        return None
    found = {one.memory: msgspec.structs.asdict(one) for one in source.peaks}
    return entries_from_json({"peaks": found})


def log_configurations(log: OpLog, *, keep_failing: bool) -> Imported:
    """The configurations of the sources that passed, or of all that ran; the others are reported as unread."""
    kept = log.kept(keep_failing=keep_failing)
    return Imported(
        runs=tuple(TraceRun(source=source.name, run=log.run, details=_peaks(source)) for source in kept),
        seen=tuple(seen for source in kept for seen in (*source.configurations, *source.chains)),
        unread=tuple(
            Unread(where=source.name, reason=f"it {source.ending.value}, so its calls do not count")
            for source in log.sources
            if source not in kept
        ),
    )
