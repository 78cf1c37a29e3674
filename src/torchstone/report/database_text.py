"""Terminal output of `trace` and `db`: a trace, an imported file, the contents of a database, a check of it."""

from collections.abc import Sequence

from torchstone.record.config import StoreInfo, TracedPeak, TraceRun
from torchstone.record.config_summary import ImportSummary, TraceSummary
from torchstone.report.text import Paint, aligned, plain
from torchstone.units import many

_MOST_SHOWN = 20


def trace_text(summary: TraceSummary) -> str:
    """One line for each source, then the totals."""
    lines = [
        f"{source.ending:8}{source.name}: {many(source.calls, 'call')}, {many(source.configurations, 'configuration')}"
        + ("" if source.kept else ", not stored")
        + (f"\n        {source.detail}" if source.detail else "")
        + "".join(f"\n        {_peak_text(peak)}" for peak in source.peaks)
        for source in summary.sources
    ]
    roles = ", ".join(f"{count} {role}" for role, count in summary.roles.items())
    lines.append(
        f"{many(summary.calls, 'call')} of {many(summary.operations, 'operator')}, "
        f"{many(summary.configurations, 'configuration')}" + (f" ({roles})" if roles else "")
    )
    if summary.ttnn is not None:
        lines.append(
            f"{many(summary.ttnn.operations, 'ttnn operation')} among them: {many(summary.ttnn.calls, 'call')}, "
            f"{many(summary.ttnn.configurations, 'configuration')}"
        )
    if summary.chains is not None:
        lines.append(f"{summary.chains:,} chains of ops that feed each other")
    what = "" if summary.chains is None else " or chain"
    new = many(summary.new, f"configuration{what} is", f"configurations{what and ' and chains'} are")
    lines.append(f"{new} new in {summary.database}")
    return "\n".join(lines)


def _peak_text(peak: TracedPeak) -> str:
    of_capacity = f" of {peak.capacity_bytes:,} B" if peak.capacity_bytes else ""
    place = f" ({peak.call_site})" if peak.call_site else ""
    return (
        f"peak of {peak.memory}: {peak.bank_bytes:,} B{of_capacity} per bank at {peak.operation or 'the start'}{place}"
    )


def import_text(summary: ImportSummary) -> str:
    """The imported configurations, damaged and missing arguments, and verified hashes."""
    lines = [
        f"{summary.path} ({summary.format}): {many(summary.configurations, 'configuration')} of "
        f"{many(summary.operations, 'op')}, {summary.new} new"
    ]
    damaged = summary.damaged
    if damaged.arguments:
        lines.append(f"  {damaged.arguments} damaged arguments, {damaged.repaired} repaired:")
        for kind in damaged.kinds:
            lines.append(f"  {kind.arguments:>6}  {kind.kind}: {'repaired' if kind.repaired else 'kept as text'}")
    if summary.not_recorded:
        lines.append(f"  {many(sum(kind.arguments for kind in summary.not_recorded), 'argument')} not recorded:")
        lines += [f"  {kind.arguments:>6}  {kind.kind}: kept as text" for kind in summary.not_recorded]
    hashes = summary.hashes
    if hashes.given:
        rules = ", ".join(f"{count} by the rule '{rule}'" for rule, count in hashes.rules.items())
        lines.append(f"  {hashes.verified} of {hashes.given} hashes verified" + (f": {rules}" if rules else ""))
    return "\n".join(lines)


def contents_text(name: str, info: StoreInfo, runs: Sequence[TraceRun], paint: Paint = plain) -> str:
    """A database in numbers, and the traces that were added to it."""
    uncounted = f", and {info.uncounted} occurrences without a count" if info.uncounted else ""
    rows = [
        ("configurations", str(info.configurations)),
        ("operations", str(info.operations)),
        ("sources", str(info.sources)),
        ("calls", f"{info.calls}{uncounted}"),
        *([("chains", str(info.chains))] if info.chains else []),
    ]
    text = f"{name}\n{aligned(rows, header=False)}"
    if not runs:
        return text
    listed = [("format", "run", "from"), *((run.format.value, run.run, run.source) for run in runs)]
    return f"{text}\n\n{aligned(listed, paint=paint)}"


def verify_text(configurations: int, problems: Sequence[str], *, hashes: int, verified: int) -> str:
    """How many problems a database has, and the first of them."""
    lines = [
        f"{many(configurations, 'configuration')}, {many(len(problems), 'problem')}",
        f"{verified} of {hashes} foreign hashes verified",
        *(f"  {line}" for line in problems[:_MOST_SHOWN]),
    ]
    if len(problems) > _MOST_SHOWN:
        lines.append(f"  and {len(problems) - _MOST_SHOWN} more; --json lists all")
    return "\n".join(lines)
