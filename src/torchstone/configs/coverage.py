"""Configurations of a model and how each ended on a backend -> ModelCoverage."""

from collections.abc import Iterable, Mapping

from torchstone.record.config import SeenConfiguration
from torchstone.record.op_coverage import ModelCoverage, OpCoverage
from torchstone.record.vector import FAILED, Status


def coverage_of(
    seen: Iterable[SeenConfiguration], statuses: Mapping[str, Status], *, models: tuple[str, ...], backend: str
) -> ModelCoverage:
    """The share of calls of these models whose configurations pass; calls of other models do not count."""
    together: dict[str, list[tuple[int, Status | None]]] = {}
    uncounted = 0
    for one in seen:
        places = [place for place in one.occurrences if place.model in models]
        uncounted += sum(place.count is None for place in places)
        calls = sum(place.count for place in places if place.count is not None)
        together.setdefault(one.configuration.op, []).append((calls, statuses.get(one.key)))
    ops = [_op_coverage(op, ended) for op, ended in together.items()]
    ops.sort(key=lambda op: (op.passed_calls - op.calls, op.passed - op.configurations, op.op))
    return ModelCoverage(models=models, backend=backend, ops=tuple(ops), uncounted=uncounted)


def _op_coverage(op: str, ended: list[tuple[int, Status | None]]) -> OpCoverage:
    passed = [calls for calls, status in ended if status is Status.PASS]
    failed = [calls for calls, status in ended if status in FAILED or status is Status.XFAIL]
    return OpCoverage(
        op=op,
        configurations=len(ended),
        passed=len(passed),
        failed=len(failed),
        calls=sum(calls for calls, _ in ended),
        passed_calls=sum(passed),
        failed_calls=sum(failed),
    )
