"""Two runs -> regressions, fixes, slower and faster vectors, and vectors that cannot be compared."""

from collections.abc import Iterable

from torchstone.record.base import Record
from torchstone.record.vector import FAILED, Status, SweepRun, VectorResult
from torchstone.sweep.perf_gate import PerfComparison, judge_times, samples_of

SLOWER_BY = 1.15  # the smallest ratio of times that counts


class Pair(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One vector in both runs."""

    id: str
    op: str
    before: str  # outcome
    after: str
    detail: str = ""
    before_s: float | None = None
    after_s: float | None = None
    calls: int = 0

    @property
    def ratio(self) -> float | None:
        """How many times longer it takes."""
        return None if not self.before_s or self.after_s is None else self.after_s / self.before_s


class RunComparison(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What changed from one run to another."""

    first: str
    second: str
    regressions: tuple[Pair, ...] = ()  # passed before, fails now
    fixed: tuple[Pair, ...] = ()
    other_failure: tuple[Pair, ...] = ()  # fails in another way
    still_failing: int = 0
    still_passing: int = 0
    slower: tuple[Pair, ...] = ()
    faster: tuple[Pair, ...] = ()
    only_first: int = 0
    only_second: int = 0
    new_failures: tuple[Pair, ...] = ()  # vectors that only the second run has
    not_comparable: int = 0  # not run in one of them
    perf: PerfComparison | None = None  # of ops and configurations; None: no vector has a time in both

    @property
    def is_worse(self) -> bool:
        """Whether something got worse."""
        slower = self.perf is not None and self.perf.slower
        return bool(self.regressions or slower or self.new_failures)


def compare_runs(first: SweepRun, second: SweepRun, *, slower_by: float = SLOWER_BY) -> RunComparison:
    """Join two runs by vector; a vector is slower when it takes `slower_by` times as long, and not by chance."""
    before = {result.id: result for result in first.results}
    after = {result.id: result for result in second.results}
    both = [(before[name], after[name]) for name in after if name in before]
    ran = [(old, new) for old, new in both if Status.NOT_RUN not in (old.status, new.status)]
    failing = [(old, new) for old, new in ran if old.status in FAILED and new.status in FAILED]
    timed = [(old, new) for old, new in ran if old.timing is not None and new.timing is not None]
    perf = judge_times(samples_of(timed), slower_by=slower_by) if timed else None
    verdicts = {change.id: change.verdict for change in perf.configurations} if perf is not None else {}
    return RunComparison(
        first=first.run,
        second=second.run,
        regressions=_pairs((old, new) for old, new in ran if old.status not in FAILED and new.status in FAILED),
        fixed=_pairs((old, new) for old, new in ran if old.status in FAILED and new.status not in FAILED),
        other_failure=_pairs((old, new) for old, new in failing if old.outcome is not new.outcome),
        still_failing=len(failing),
        still_passing=sum(old.status not in FAILED and new.status not in FAILED for old, new in ran),
        slower=_pairs((old, new) for old, new in timed if verdicts.get(new.id) == "slower"),
        faster=_pairs((old, new) for old, new in timed if verdicts.get(new.id) == "faster"),
        only_first=sum(name not in after for name in before),
        only_second=sum(name not in before for name in after),
        new_failures=_pairs((None, new) for name, new in after.items() if name not in before and new.status in FAILED),
        not_comparable=len(both) - len(ran),
        perf=perf,
    )


def _pairs(found: Iterable[tuple[VectorResult | None, VectorResult]]) -> tuple[Pair, ...]:
    pairs = [
        Pair(
            id=new.id,
            op=new.op,
            before=old.outcome.value if old is not None else "not there",
            after=new.outcome.value,
            detail=new.detail,
            before_s=old.timing.median_s if old is not None and old.timing is not None else None,
            after_s=new.timing.median_s if new.timing is not None else None,
            calls=new.calls,
        )
        for old, new in found
    ]
    return tuple(sorted(pairs, key=lambda pair: (-pair.calls, pair.op, pair.id)))
