"""Runs over time -> the commit since which a vector fails, flaky vectors, and trends per op and model."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from torchstone.record.base import Record
from torchstone.record.vector import FAILED, Quarantine, QuarantineEntry, Status, SweepHistory, SweepRun, VectorResult

_FLIPS = 2  # from pass to fail and back: once is a change, twice is luck


class FirstBad(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Since when a vector fails on a backend."""

    id: str
    op: str
    backend: str
    run: str  # the first run of those in which it fails without a break
    commit: str = ""
    good_run: str = ""  # the run before, in which it passed; "": it never did
    good_commit: str = ""
    detail: str = ""
    calls: int = 0


class FlakyVector(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A vector that ends differently without a reason that is known."""

    id: str
    op: str
    backend: str
    runs: int
    failed: int
    flips: int  # changes between passing and failing, over all runs
    same_commit: bool  # it passed and failed at one commit


class TrendPoint(Record, frozen=True, kw_only=True, omit_defaults=False):
    """An op or a model in one run."""

    name: str
    backend: str
    run: str
    commit: str
    passed: int
    failed: int


class HistorySummary(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What the runs of a folder or database say together."""

    runs: int
    first_bad: tuple[FirstBad, ...] = ()
    flaky: tuple[FlakyVector, ...] = ()
    ops: tuple[TrendPoint, ...] = ()
    models: tuple[TrendPoint, ...] = ()


def first_bad(history: SweepHistory) -> tuple[FirstBad, ...]:
    """For each vector that fails in the newest run that has it: since when; the most called first."""
    found = []
    for backend, results in _by_vector(history):
        _, newest = results[-1]
        if newest.status not in FAILED:
            continue
        first, good = _since(results)
        found.append(
            FirstBad(
                id=newest.id, op=newest.op, backend=backend, run=first.run, commit=first.commit,
                good_run="" if good is None else good.run, good_commit="" if good is None else good.commit,
                detail=newest.detail, calls=newest.calls,
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.calls, one.op, one.id, one.backend)))


def flaky_vectors(history: SweepHistory) -> tuple[FlakyVector, ...]:
    """Vectors whose attempts ended differently in a run, or which passed and failed at one commit, or flipped twice."""
    found = []
    for backend, results in _by_vector(history):
        failed = [result.status in FAILED for _, result in results]
        flips = sum(one != other for one, other in pairwise(failed))
        commits: dict[str, set[bool]] = {}
        for (run, _), bad in zip(results, failed, strict=True):
            if run.commit:
                commits.setdefault(run.commit, set()).add(bad)
        same = any(len(ends) > 1 for ends in commits.values())
        if same or flips >= _FLIPS or any(result.flaky for _, result in results):
            one = results[-1][1]
            found.append(
                FlakyVector(
                    id=one.id, op=one.op, backend=backend, runs=len(results), failed=sum(failed), flips=flips,
                    same_commit=same,
                )
            )  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.flips, one.op, one.id, one.backend)))


def trend_of(history: SweepHistory, *, by: str) -> tuple[TrendPoint, ...]:
    """Passed and failed vectors of each op, or of each model, in each run that ran any; `by` is op or model."""
    points = []
    for run in history.runs:
        groups: dict[str, list[VectorResult]] = {}
        for result in run.results:
            if result.status is Status.NOT_RUN:
                continue
            for name in (result.op,) if by == "op" else result.models:
                groups.setdefault(name, []).append(result)
        for name in sorted(groups):
            failed = sum(one.status in FAILED for one in groups[name])
            passed = sum(one.status is Status.PASS for one in groups[name])
            points.append(
                TrendPoint(name=name, backend=run.backend, run=run.run, commit=run.commit, passed=passed, failed=failed)
            )
    return tuple(points)


def _by_vector(history: SweepHistory) -> Iterator[tuple[str, list[tuple[SweepRun, VectorResult]]]]:
    """The results of each vector on each backend, oldest first, without those that did not run."""
    found: dict[tuple[str, str], list[tuple[SweepRun, VectorResult]]] = {}
    for run in history.runs:
        for result in run.results:
            if result.status is not Status.NOT_RUN:
                found.setdefault((run.backend, result.id), []).append((run, result))
    yield from ((backend, results) for (backend, _), results in found.items())


def _since(results: Sequence[tuple[SweepRun, VectorResult]]) -> tuple[SweepRun, SweepRun | None]:
    """The first run of the failures at the end, and the run before it."""
    first, good = results[-1][0], None
    for run, result in reversed(results):
        if result.status not in FAILED:
            good = run
            break
        first = run
    return first, good


# --- Quarantine: known failures that do not fail a run, as data ---


def quarantined(results: Iterable[VectorResult], quarantine: Quarantine, backend: str) -> Iterator[VectorResult]:
    """The results; those that the list names carry its reason."""
    from msgspec.structs import replace

    for result in results:
        entry = next((one for one in quarantine.entries if matches(one, result, backend)), None)
        yield result if entry is None else replace(result, quarantined=entry.reason or "quarantined")


def matches(entry: QuarantineEntry, result: VectorResult, backend: str) -> bool:
    """Whether an entry of the list is about a result."""
    if entry.backend and entry.backend != backend:
        return False
    digest = result.id.partition("-")[2]
    return result.op == entry.vector or result.id.startswith(entry.vector) or digest.startswith(entry.vector)
