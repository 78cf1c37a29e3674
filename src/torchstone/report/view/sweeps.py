"""Sweep runs as people look at them: one line per op and backend, one line per vector with its history."""

from collections import Counter
from collections.abc import Sequence

from torchstone.record.base import Record
from torchstone.record.vector import FAILED, Status, SweepHistory, SweepRun, VectorResult

PASSED, FAILING, NOT_RUN = "passed", "failed", "not run"
ACCEPTED = "accepted"  # by a device library that compared no values


class OpRow(Record, frozen=True, kw_only=True):
    """One op on several backends."""

    op: str
    vectors: int
    calls: int
    by_backend: dict[str, tuple[int, int, int]]  # passed or accepted, failed, not run
    accepting: frozenset[str] = frozenset()  # backends that accepted vectors without comparing values


class VectorRow(Record, frozen=True, kw_only=True):
    """One vector through all runs."""

    id: str
    op: str
    suite: str
    calls: int
    last: VectorResult
    words: tuple[str, ...]  # one per run, oldest first; "" where it was not part of the run
    failure_rate: float | None  # share of the runs in which it failed, of those in which it ran


def op_rows(history: SweepHistory) -> list[OpRow]:
    """One row per op: the newest run of each backend side by side."""
    newest = history.newest
    ops: dict[str, dict[str, Counter[str]]] = {}
    vectors: dict[str, dict[str, int]] = {}
    for backend, run in newest.items():
        for result in run.results:
            ops.setdefault(result.op, {}).setdefault(backend, Counter())[word_of(result)] += 1
            vectors.setdefault(result.op, {})[result.id] = result.calls
    rows = [
        OpRow(
            op=op,
            vectors=len(vectors[op]),
            calls=sum(vectors[op].values()),
            by_backend={
                name: (count[PASSED] + count[ACCEPTED], count[FAILING], count[NOT_RUN])
                for name, count in counts.items()
            },
            accepting=frozenset(name for name, count in counts.items() if count[ACCEPTED]),
        )
        for op, counts in ops.items()
    ]
    return sorted(rows, key=lambda row: (-_failed(row), -row.calls, row.op))


def vector_rows(runs: Sequence[SweepRun]) -> list[VectorRow]:
    """One row per vector, those that fail in the newest run they were part of first."""
    by_vector: dict[str, dict[int, VectorResult]] = {}
    for number, run in enumerate(runs):
        for result in run.results:
            by_vector.setdefault(result.id, {})[number] = result
    rows = []
    for identity, by_run in by_vector.items():
        last = by_run[max(by_run)]
        ran = [result for result in by_run.values() if result.status is not Status.NOT_RUN]
        rows.append(
            VectorRow(
                id=identity,
                op=last.op,
                suite=last.suite,
                calls=last.calls,
                last=last,
                words=tuple(word_of(by_run[number]) if number in by_run else "" for number in range(len(runs))),
                failure_rate=sum(result.status in FAILED for result in ran) / len(ran) if ran else None,
            )
        )
    return sorted(rows, key=lambda row: (row.last.status not in FAILED, row.op, row.id))


def word_of(result: VectorResult) -> str:
    """A result in one word, as statuses are shown."""
    if result.status in FAILED:
        return FAILING
    if result.status is Status.ACCEPTED:
        return ACCEPTED
    return NOT_RUN if result.status is Status.NOT_RUN else PASSED


def word_for(counts: tuple[int, int, int] | None, *, accepted: bool = False) -> str:
    """Many results in one word: one failure is enough."""
    if counts is None or not counts[0] + counts[1]:
        return NOT_RUN
    return FAILING if counts[1] else ACCEPTED if accepted else PASSED


def _failed(row: OpRow) -> int:
    return sum(failed for _, failed, _ in row.by_backend.values())
