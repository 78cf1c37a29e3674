"""Log formats by name; another package adds one through the entry-point group `torchstone.memory_dialects`."""

from importlib.metadata import entry_points
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


def dialects() -> dict[str, Dialect]:
    """All formats: the built-in one first, then those of other packages."""
    known: dict[str, Dialect] = {TTRuntime.name: TTRuntime()}
    for entry in entry_points(group=GROUP):
        known.setdefault(entry.name, entry.load()())
    return known


def dialect_named(name: str) -> Dialect:
    """One format by its name."""
    known = dialects()
    if name not in known:
        msg = f"there is no log format {name!r}; known are {', '.join(known)}"
        raise InputError(msg)
    return known[name]
