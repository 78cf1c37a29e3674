"""Terminal output of `torchstone ttnn`: an environment and its boards, and verdicts grouped by cause."""

from collections import Counter
from collections.abc import Sequence

from torchstone.record.ttnn_verdict import Difference, JudgedRun, OpenedBoard, TtnnEnvironment, VersionDiff
from torchstone.report.text import Paint, aligned, plain
from torchstone.units import many, show_bytes, show_seconds

NO_VALUES = "A mock device has no values: accepted means that ttnn takes the call, not that its result is right."
_CUT = 100


def diagnosis_text(environment: TtnnEnvironment, boards: Sequence[OpenedBoard], paint: Paint = plain) -> str:
    """Versions, compiler, devices, and a line per board."""
    compiler = {
        "real": "real (SFPI)",
        "stand-in": "stand-in: mock devices only",
        "none": "none: run `torchstone ttnn setup`",
    }
    lines = [
        f"python    {environment.python_version}  {environment.python}",
        f"ttnn      {environment.ttnn or 'not installed: run `torchstone ttnn setup`'}",
        f"torch     {environment.torch or 'not installed: only tracing needs it'}",
        f"compiler  {compiler[environment.compiler]}",
        f"devices   {environment.devices or 'none'} on this machine",
    ]
    if boards:
        rows = [["board", "kind", "opened", "chips", "cores", "DRAM banks", "L1 per core", "DRAM per bank", "time"]]
        for one in boards:
            kind = "mock" if one.mock else "real"
            if one.opened:
                cores = f"{one.cores[0]}x{one.cores[1]}"
                sizes = [show_bytes(one.l1_bank_bytes), show_bytes(one.dram_bank_bytes), show_seconds(one.elapsed_s)]
                rows.append([one.name, kind, "yes", str(one.chips), cores, str(one.dram_banks), *sizes])
            else:
                rows.append([one.name, kind, f"no: {one.error[:_CUT]}", *[""] * 6])
        lines += ["", aligned(rows, right=(3, 5, 6, 7, 8), paint=paint)]
    return "\n".join(lines)


def judgements_text(
    runs: Sequence[JudgedRun], differences: dict[str, Sequence[Difference]], paint: Paint = plain
) -> str:
    """Counts of each run with its causes, then what changes from the first run to each other one."""
    lines: list[str] = []
    for run in runs:
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in run.outcomes.items())
        lines.append(
            f"{run.title}: {many(run.configurations, 'configuration')}, {counts} ({show_seconds(run.elapsed_s)})"
        )
        if run.approximate:
            lines.append(f"  {run.approximate:,} are approximate: their trace lost an argument")
        if run.causes:
            rows = [["  configurations", "outcome", "ops", "cause", "example"]]
            for one in run.causes:
                ops = one.ops[0] if len(one.ops) == 1 else f"{one.ops[0]} and {len(one.ops) - 1} more"
                mark = " (approximate)" if one.approximate else ""
                cells = [f"{one.configurations:,}", one.outcome, ops, one.cause[:_CUT] + mark, one.example[:12]]
                rows.append(cells)
            lines.append(aligned(rows, right=(0,), paint=paint))
        lines.append("")
    for title, found in differences.items():
        lines += _difference_lines(runs[0], title, found)
    return "\n".join([*lines, NO_VALUES])


def _difference_lines(first: JudgedRun, title: str, found: Sequence[Difference]) -> list[str]:
    worse = [one for one in found if one.before == "accepted"]
    better = [one for one in found if one.after == "accepted"]
    other = len(found) - len(worse) - len(better)
    lines = [f"{len(worse):,} of {first.configurations:,} break on {title} (against {first.title})"]
    for (op, cause), count in Counter((one.op, one.cause) for one in worse).most_common():
        lines.append(f"  {count:,} {op}: {cause[:_CUT]}")
    if better:
        lines.append(f"  {len(better):,} are accepted there and not on {first.title}")
    if other:
        lines.append(f"  {other:,} fail on both, differently")
    return [*lines, ""]


def versions_text(found: VersionDiff, paint: Paint = plain, *, limit: int = 20) -> str:
    """Ops that are gone or new, arguments that break callers, and then the verdicts."""
    breaking = [one for one in found.changed if one.lost_arguments or one.now_required]
    lines = [
        f"{found.before} -> {found.after}: {many(found.ops, 'op')} in both, {len(found.removed):,} removed, "
        f"{len(found.added):,} added, {len(found.changed):,} with other signatures, of which {len(breaking):,} lost an "
        "argument or require a new one",
    ]
    for title, names in (("removed", found.removed), ("added", found.added)):
        if names:
            more = f" and {len(names) - limit} more" if len(names) > limit else ""
            lines.append(f"{title}: {', '.join(names[:limit])}{more}")
    if breaking:
        rows = [["op", "arguments that are gone", "arguments that are required now"]]
        rows += [
            [one.op, ", ".join(one.lost_arguments) or "-", ", ".join(one.now_required) or "-"]
            for one in breaking[:limit]
        ]
        lines += ["", aligned(rows, paint=paint)]
        lines += [f"{len(breaking) - limit} more; --json has all"] if len(breaking) > limit else []
    if found.judgements is not None:
        lines += ["", judgements_text(found.judgements.runs, dict(found.judgements.differences), paint)]
    return "\n".join(lines)
