"""A sweep run for continuous integration, and its failures as SARIF."""

import json
from urllib.parse import quote

from torchstone.record.vector import FAILED, Status, SweepRun, VectorResult
from torchstone.report.ci import Case, CiResults, Failures
from torchstone.report.sweep_text import short_id
from torchstone.units import many


def sweep_for_ci(run: SweepRun, *, failed: bool) -> CiResults:
    """One suite for each op or sweep module, one case for each vector; the failures with the most calls first."""
    failures = [one for one in run.results if one.status in FAILED and not one.quarantined]
    failures.sort(key=lambda one: (-one.calls, one.op, one.id))
    held = sum(bool(one.quarantined) and one.status in FAILED for one in run.results)
    lines = [", ".join(f"{count:,} {status}" for status, count in run.counts.items())]
    lines += [f"{held:,} failures are quarantined."] if held else []
    return CiResults(
        failed=failed,
        program=run.backend,
        cases=[_case(one) for one in sorted(run.results, key=lambda one: one.module)],
        subject=f"Sweep on {run.backend}" + ("" if run.finished else " (interrupted)"),
        lines=[*lines, *run.notes],
        failures=Failures(
            columns=("op", "vector", "outcome", "calls", "detail"),
            numbers=frozenset({"calls"}),
            rows=[(one.op, short_id(one.id), one.outcome.value, f"{one.calls:,}", one.detail) for one in failures],
        ),
        annotations=_annotations(run.backend, failures),
    )


def _case(result: VectorResult) -> Case:
    why = f" (quarantined: {result.quarantined})" if result.quarantined else ""
    return Case(
        suite=result.module,
        name=f"{result.suite}[{result.id}]",
        kind=_kind(result),
        message=f"{result.outcome.value}: {result.detail}{why}",
        text=result.traceback or result.last_output,
        elapsed_s=result.elapsed_s,
    )


def _kind(result: VectorResult) -> str:
    if result.status in FAILED and not result.quarantined:
        return "error" if result.status is Status.FAIL_CRASH_HANG else "failure"
    return "" if result.status is Status.PASS else "skipped"


def _annotations(backend: str, failed: list[VectorResult]) -> list[tuple[str, str]]:
    """One for each op that fails, those with the most calls first."""
    by_op: dict[str, list[VectorResult]] = {}
    for result in failed:
        by_op.setdefault(result.op, []).append(result)
    found = []
    for group in sorted(by_op.values(), key=lambda group: (-sum(one.calls for one in group), group[0].op)):
        first = group[0]
        more = f" (and {many(len(group) - 1, 'more vector')})" if len(group) > 1 else ""
        found.append((f"{first.op} on {backend}: {first.outcome.value}", f"{short_id(first.id)} {first.detail}{more}"))
    return found


def sarif_json(run: SweepRun) -> str:
    """The failures as SARIF 2.1.0: a rule for each op, a result for each vector, at the file that holds the vector.

    Quarantined failures are suppressed results, so that code scanning shows them as dismissed.
    """
    failed = [one for one in run.results if one.status in FAILED]
    rules = [
        {"id": op, "shortDescription": {"text": f"{op} on {run.backend}"}} for op in sorted({one.op for one in failed})
    ]
    tool = {"driver": {"name": "torchstone sweep", "rules": rules}}
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": tool, "results": [_sarif_result(run, one) for one in failed]}],
    }
    return json.dumps(document, indent=1)


def _sarif_result(run: SweepRun, result: VectorResult) -> dict[str, object]:
    found: dict[str, object] = {
        "ruleId": result.op,
        "level": "error",
        "message": {"text": f"{result.outcome.value} on {run.backend}: {result.detail or 'no detail'}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": f"vectors/{quote(result.module)}.json"},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [{"name": result.id, "kind": "member"}],
            }
        ],
        "partialFingerprints": {"vector": f"{run.backend} {result.id}"},
    }
    if result.quarantined:
        found["suppressions"] = [{"kind": "external", "justification": result.quarantined}]
    return found
