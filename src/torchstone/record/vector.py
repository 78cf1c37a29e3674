"""Vectors: one test each, stable by name; and how each ended on a backend."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from torchstone.record.base import Count, Document, Record, Schema
from torchstone.record.check import UNJUDGED, Outcome
from torchstone.record.config import Configuration, TensorFacts, check_numbers
from torchstone.record.consistency import distinct

EXPECTED_TO_FAIL = "xfail"  # suites whose names begin so


class Validity(StrEnum):
    """Whether a vector can be run."""

    VALID = "valid"
    INVALID = "invalid"


class Status(StrEnum):
    """How a vector ended, in the words of tt-metal's sweeps; the outcome beside it says more."""

    PASS = "PASS"  # noqa: S105 - a status, not a password
    ACCEPTED = "ACCEPTED"  # a device library took the call, perhaps on a mock device: never a numeric pass
    FAIL_ASSERT_EXCEPTION = "FAIL_ASSERT_EXCEPTION"  # wrong, unsupported, compile error, raised, refused
    FAIL_CRASH_HANG = "FAIL_CRASH_HANG"  # crashed, timed out, out of memory
    NOT_RUN = "NOT_RUN"
    XFAIL = "XFAIL"
    XPASS = "XPASS"


FAILED = frozenset({Status.FAIL_ASSERT_EXCEPTION, Status.FAIL_CRASH_HANG, Status.XPASS})
_DIED = frozenset({Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY})


def status_of(outcome: Outcome, *, expected_to_fail: bool) -> Status:
    """The status word of an outcome; a suite that is expected to fail turns it round."""
    if outcome in UNJUDGED:
        return Status.NOT_RUN
    if expected_to_fail:
        return Status.XPASS if outcome in (Outcome.PASSED, Outcome.ACCEPTED) else Status.XFAIL
    if outcome is Outcome.PASSED:
        return Status.PASS
    if outcome is Outcome.ACCEPTED:
        return Status.ACCEPTED
    return Status.FAIL_CRASH_HANG if outcome in _DIED else Status.FAIL_ASSERT_EXCEPTION


class Vector(Record, frozen=True, kw_only=True):
    """One test: an op with the arguments of a configuration, or a set of parameters for a sweep module."""

    id: str
    module: str  # the op of a configuration, or the name of a sweep module
    suite: str
    op: str
    validity: Validity = Validity.VALID
    reason: str = ""  # why it is not valid
    refused: str = ""  # the error with which eager PyTorch refused the call: a backend must refuse it, too
    configuration: Configuration | None = None  # None: its module knows its parameters
    facts: tuple[TensorFacts, ...] = ()
    path: str = ""  # the file of its sweep module; "" for an op
    parameters: dict[str, object] = {}  # of a sweep module, as text where JSON has no word for them
    neighbour_of: str = ""  # the id of the traced vector it was made from
    change: str = ""  # what was changed in it: "size 128 -> 1"
    cluster: str = ""  # vectors of one cluster differ in sizes only
    role: str = ""  # compute, view, factory, random
    calls: Count = 0
    models: tuple[str, ...] = ()
    timeout_s: float | None = None

    @property
    def expected_to_fail(self) -> bool:
        """Whether its suite says so."""
        return self.suite.startswith(EXPECTED_TO_FAIL)


class VectorFile(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The vectors of one module, all suites."""

    schema: ClassVar[Schema] = Schema(kind="vectors", version=1)
    module: str
    vectors: tuple[Vector, ...] = ()

    def check(self) -> None:
        """Each vector once, with facts about tensors that it has."""
        check_vectors(self.vectors)


def check_vectors(vectors: Sequence[Vector]) -> None:
    """Raise ValueError where ids repeat, or facts are about tensors that a configuration does not have."""
    distinct("vectors", [vector.id for vector in vectors])
    for vector in vectors:
        if vector.configuration is not None:
            check_numbers(vector.configuration, vector.facts)


class Timing(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Time of warm runs."""

    median_s: float
    mad_s: float  # median absolute deviation
    runs: int
    eager_median_s: float | None = None  # of the same call in eager PyTorch, in the same process
    ratios: tuple[float, ...] = ()  # backend / eager, by turns in one process; one for each round
    rounds_s: tuple[float, ...] = ()  # the medians of all rounds, each in a process of its own


class Attempt(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One run of a vector."""

    outcome: Outcome
    detail: str = ""
    elapsed_s: float = 0.0


class VectorResult(Record, frozen=True, kw_only=True, omit_defaults=False):
    """How a vector ended on a backend; the last attempt decides."""

    id: str
    module: str
    suite: str
    op: str
    status: Status
    outcome: Outcome
    detail: str = ""  # one line; "" when it passed
    verdict: dict[str, object] | None = None  # what was compared, with the tolerance it was judged by
    timing: Timing | None = None
    elapsed_s: float = 0.0
    attempts: tuple[Attempt, ...] = ()
    flaky: bool = False  # attempts ended differently
    signal: str | None = None
    exit_code: int | None = None
    traceback: str = ""
    last_output: str = ""
    peak_bytes: Count | None = None
    configuration: str = ""  # the key of the configuration; "" for a sweep module
    calls: Count = 0
    models: tuple[str, ...] = ()
    quarantined: str = ""  # the reason why a failure does not fail the run; "": it does


class SweepRun(Document, frozen=True, kw_only=True, omit_defaults=False):
    """One run of vectors on one backend."""

    schema: ClassVar[Schema] = Schema(kind="sweep_run", version=1)
    run: str
    backend: str
    options: dict[str, object] = {}
    python: str = ""
    backend_version: str = ""
    started: str = ""  # UTC, ISO 8601
    commit: str = ""  # of the code under test: that of the current folder, or as CI says
    branch: str = ""
    environment: dict[str, str] = {}  # machine and versions
    profile: str = ""  # what a correct implementation may do; "": not known, of an older run or another tool
    tolerance: dict[str, float] = {}  # what the user asked for: decides in place of the noise
    elapsed_s: float = 0.0
    command: str = ""
    finished: bool = False
    selected: Count = 0  # vectors that were to run
    results: tuple[VectorResult, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def suspicious(self) -> tuple[VectorResult, ...]:
        """The vectors that passed with an error that noise explains only in part."""
        return tuple(
            one for one in self.results
            if one.outcome is Outcome.PASSED and (one.verdict or {}).get("state") == "suspicious"
        )  # fmt: skip

    @property
    def counts(self) -> dict[str, int]:
        """How many vectors ended with which status."""
        return dict(sorted(Counter(result.status.value for result in self.results).items()))

    @property
    def outcomes(self) -> dict[str, int]:
        """How many vectors had which outcome."""
        return dict(sorted(Counter(result.outcome.value for result in self.results).items()))


class SweepSettings(Record, frozen=True, kw_only=True, omit_defaults=False):
    """How the vectors of a run are run and judged: what a resumed run must do in the same way."""

    timeout: float | None = None  # seconds for each vector; None: its own, or 30
    memory_limit: str | None = None  # for each vector, such as 2GiB; None: a fair share of what is free
    retries: int = 1  # after a crash or a hang
    retry_all: bool = False
    perf: bool = False
    perf_runs: int = 20
    perf_rounds: int = 5  # processes in which each vector is timed
    pcc: float | None = None  # None, here and below: the noise of the profile decides
    rtol: float | None = None
    atol: float | None = None
    profile: str = "default"  # what a correct implementation may do
    strict_stride: bool = False
    backward: bool = False  # gradients are judged, too
    reset_command: str = ""
    forks: bool = True  # False: the backend does not survive a fork

    @property
    def tolerance(self) -> dict[str, float]:
        """What the user asked for: empty where the noise decides."""
        limits = {"pcc": self.pcc, "rtol": self.rtol, "atol": self.atol}
        return {name: limit for name, limit in limits.items() if limit is not None}


class QuarantineEntry(Record, frozen=True, kw_only=True):
    """A known failure."""

    vector: str  # the beginning of an id, or the name of an op
    backend: str = ""  # "": on all
    reason: str = ""
    added: str = ""  # UTC, ISO 8601


class Quarantine(Document, frozen=True, kw_only=True, omit_defaults=False):
    """Known failures that do not fail a run: they run and are reported."""

    schema: ClassVar[Schema] = Schema(kind="sweep_quarantine", version=1)
    entries: tuple[QuarantineEntry, ...] = ()


class SweepPlan(Document, frozen=True, kw_only=True, omit_defaults=False):
    """What a run is going to do, written before it begins."""

    schema: ClassVar[Schema] = Schema(kind="sweep_plan", version=1)
    run: SweepRun  # without results
    vectors: tuple[Vector, ...] = ()
    settings: SweepSettings = SweepSettings()

    def check(self) -> None:
        """Each vector once."""
        check_vectors(self.vectors)


class SweepHistory(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The runs of a folder or a database, oldest first."""

    schema: ClassVar[Schema] = Schema(kind="sweep_history", version=1)
    runs: tuple[SweepRun, ...] = ()
    texts: dict[str, str] = {}  # vector -> its call in words

    @property
    def newest(self) -> dict[str, SweepRun]:
        """The newest run on each backend."""
        return {run.backend: run for run in self.runs}
