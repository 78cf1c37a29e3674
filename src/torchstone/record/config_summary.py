"""The answers of `trace`, `db import` and `db verify` in numbers; what could not be read or verified stands beside."""

from torchstone.record.base import Record
from torchstone.record.config import TracedPeak


class SourceSummary(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One test, script or model that was traced."""

    name: str
    ending: str  # passed, failed, skipped
    kept: bool  # its calls are in the database
    calls: int
    configurations: int
    detail: str = ""
    peaks: tuple[TracedPeak, ...] = ()


class TtnnShare(Record, frozen=True, kw_only=True, omit_defaults=False):
    """How much of a trace are operations of ttnn."""

    operations: int
    configurations: int
    calls: int


class TraceSummary(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What one `torchstone trace` added to the database."""

    target: str
    kind: str
    run: str
    database: str
    calls: int
    operations: int
    configurations: int
    new: int  # configurations that the database did not have
    roles: dict[str, int]  # role -> configurations
    ttnn: TtnnShare | None  # None: ttnn was not recorded
    sources: tuple[SourceSummary, ...]
    chains: int | None = None  # of calls that feed each other; None: not recorded
    notes: tuple[str, ...] = ()


class DamageKind(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Arguments that were damaged in the same way."""

    kind: str
    repaired: bool
    arguments: int


class Damaged(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The damaged arguments of a file."""

    arguments: int
    repaired: int
    kinds: tuple[DamageKind, ...] = ()


class NotRecorded(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Arguments that the tool that wrote the file did not record."""

    kind: str
    arguments: int


class HashCounts(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The hashes that another tool wrote, and the rules that reproduce them."""

    given: int
    verified: int
    rules: dict[str, int]  # rule -> hashes


class UnreadPart(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A part of a file that gave no configuration."""

    where: str
    reason: str


class ImportSummary(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What one file or folder added to the database."""

    path: str
    format: str
    configurations: int
    operations: int
    calls: int
    new: int
    known: int
    damaged: Damaged
    not_recorded: tuple[NotRecorded, ...]
    hashes: HashCounts
    unread: tuple[UnreadPart, ...] = ()
