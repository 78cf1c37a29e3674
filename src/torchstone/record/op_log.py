"""What one `torchstone trace` saw: the op calls of each test, script or model, before any database."""

from enum import StrEnum

from torchstone.record.base import Record
from torchstone.record.config import SeenConfiguration


class TargetKind(StrEnum):
    """What was traced."""

    PYTEST = "pytest"
    SCRIPT = "script"
    MODEL = "model"


class SourceEnding(StrEnum):
    """How a test, script or model ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class TracedSource(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One test, script or model."""

    name: str  # a pytest node, a script with its arguments, a model
    ending: SourceEnding
    detail: str = ""  # what it raised, in one line
    calls: int = 0
    configurations: tuple[SeenConfiguration, ...] = ()


class OpLog(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One run of `torchstone trace`."""

    target: str  # as the user named it
    kind: TargetKind
    run: str  # tells this trace from all others
    created: str  # UTC, ISO 8601
    command: str = ""
    versions: dict[str, str] = {}  # with ttnn's where its calls were recorded, too
    sources: tuple[TracedSource, ...] = ()
    roles: dict[str, str] = {}  # op -> compute, view, factory, random, unknown; ttnn for ttnn's, which have no schema
    notes: tuple[str, ...] = ()

    def kept(self, *, keep_failing: bool) -> tuple[TracedSource, ...]:
        """The sources whose calls count: those that passed, or all that ran."""
        wanted = {SourceEnding.PASSED, SourceEnding.FAILED} if keep_failing else {SourceEnding.PASSED}
        return tuple(source for source in self.sources if source.ending in wanted)
