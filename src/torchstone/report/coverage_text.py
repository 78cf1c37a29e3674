"""How much of a model is covered, as text."""

from torchstone.record.op_coverage import ModelCoverage
from torchstone.report.text import Paint, aligned, plain


def coverage_text(coverage: ModelCoverage, *, top: int, paint: Paint = plain) -> str:
    """The share first, then the ops that miss most."""
    lines = [_headline(coverage)]
    if coverage.uncounted:
        lines.append(f"{coverage.uncounted} places have no count of calls and are no part of this share")
    lines.append(
        f"{coverage.passed} of {coverage.configurations} configurations pass; {coverage.failed_calls} calls fail, "
        f"{coverage.calls - coverage.passed_calls - coverage.failed_calls} were not tested"
    )
    rows = [("op", "calls", "pass", "fail", "not tested", "covered")]
    for op in coverage.ops[:top]:
        untested = op.calls - op.passed_calls - op.failed_calls
        share = _percent(op.passed_calls, op.calls)
        rows.append((op.op, str(op.calls), str(op.passed_calls), str(op.failed_calls), str(untested), share))
    return "\n".join([*lines, "", aligned(rows, right=(1, 2, 3, 4, 5), paint=paint)])


def _headline(coverage: ModelCoverage) -> str:
    names = ", ".join(coverage.models)
    if not coverage.calls:
        return f"{names} on {coverage.backend}: no call was counted, so there is no share of calls"
    share = _percent(coverage.passed_calls, coverage.calls)
    calls = f"{coverage.passed_calls} of {coverage.calls} calls"
    return f"{names} on {coverage.backend}: {share} covered, {calls} are of configurations that pass"


def _percent(part: int, whole: int) -> str:
    """A share that says 100 % only where nothing is missing, and 0 % only where there is nothing."""
    if not whole:
        return "-"
    if part in (0, whole):
        return f"{100 * part // whole} %"
    return f"{min(max(100 * part / whole, 0.1), 99.9):.1f} %"
