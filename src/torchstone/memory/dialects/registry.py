"""Log formats by name; another package adds one through the entry-point group `torchstone.memory_dialects`."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from torchstone.errors import InputError
from torchstone.memory.dialects.tt_runtime import TTRuntime
from torchstone.record.memory import MemoryTimeline

GROUP = "torchstone.memory_dialects"


class LogReader(Protocol):
    """Reads one log, chunk by chunk."""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes; a line may go on in the next chunk."""

    def finish(self) -> MemoryTimeline:
        """The log is over."""


class Dialect(Protocol):
    """One log format."""

    name: str
    looked_for: str  # what marks a log as this format, for the error that says it was not found

    def is_spoken_in(self, sample: bytes) -> bool:
        """Whether the first megabytes of a log are of this format."""

    def open_reader(self, *, rank: str = "") -> LogReader:
        """Begin a log; rank picks one process of a multi-host run."""


def dialects() -> Iterator[Dialect]:
    """All formats: the built-in one first, then those of other packages, each loaded only when it is come to."""
    yield TTRuntime()
    for entry in entry_points(group=GROUP):
        yield _loaded(entry)


def dialect_named(name: str) -> Dialect:
    """One format by its name."""
    if name == TTRuntime.name:
        return TTRuntime()
    others = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in others:
        msg = f"unknown log format {name!r}; use one of {', '.join((TTRuntime.name, *others))}"
        raise InputError(msg)
    return _loaded(others[name])


def _loaded(entry: EntryPoint) -> Dialect:
    try:
        dialect: Dialect = entry.load()()
    except (ImportError, AttributeError, TypeError) as error:
        msg = f"the log format {entry.name!r} ({entry.value}) cannot be loaded: {error}; repair or remove its package"
        raise InputError(msg) from error
    return dialect
