"""Terminal output of `torchstone sweep`: counts, failures by cause, two runs side by side."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from torchstone.numerics.profiles import rule_in_words
from torchstone.record.sweep_summary import GenerateSummary, RetraceSummary
from torchstone.record.vector import FAILED, Status, SweepHistory, SweepRun, Vector, VectorResult
from torchstone.report.text import Paint, aligned, plain
from torchstone.report.ttnn_text import NO_VALUES
from torchstone.report.view.sweeps import op_rows
from torchstone.sweep.compare_runs import Pair, RunComparison
from torchstone.sweep.history import FirstBad, HistorySummary
from torchstone.sweep.perf_gate import Change, PerfComparison
from torchstone.units import many, show_seconds

_TEMPORARY = re.compile(r"(?:/[\w.-]+)*/tmp\w+(?:/[\w.-]+)*")  # files that have another name each time
_CHANGING = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_SHOWN = 10
_COMMIT = 10  # characters of a commit
_SHORT_ID = 15


def short_id(identity: str) -> str:
    """Enough of an id to find its vector by."""
    return identity[:_SHORT_ID]


def cause_of(result: VectorResult) -> str:
    """What failures of one kind have in common: their words without the numbers."""
    words = _CHANGING.sub("#", _TEMPORARY.sub("", result.detail))
    return f"{result.outcome.value}: {words}" if words else result.outcome.value


def failures_by_cause(results: Iterable[VectorResult]) -> dict[str, list[VectorResult]]:
    """The failed vectors, those with the most in common first."""
    groups: dict[str, list[VectorResult]] = {}
    for result in results:
        if result.status in FAILED:
            groups.setdefault(cause_of(result), []).append(result)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def _suspicious(run: SweepRun, limit: int) -> list[str]:
    """The vectors that passed with an error that noise explains only in part."""
    found = run.suspicious
    if not found:
        return []
    more = f", and {len(found) - limit:,} more" if len(found) > limit else ""
    shown = [f"  {short_id(one.id)} {one.op}: {one.detail}" for one in found[:limit]]
    return [f"{len(found):,} suspicious{more}:", *shown]


def how_judged(run: SweepRun) -> str:
    """By which rule the values of a run were judged; a device library that only accepts calls gives none."""
    if run.counts.get("ACCEPTED"):
        return NO_VALUES
    return rule_in_words(run.profile, asked=bool(run.tolerance))


def run_text(run: SweepRun, *, limit: int = _SHOWN, paint: Paint = plain) -> str:
    """One run: counts by status, and the failures by cause."""
    lines = [_title(run)]
    counts = run.counts
    lines.append(", ".join(f"{count:,} {status}" for status, count in counts.items()) or "nothing ran")
    failed_by_outcome = {
        name: count for name, count in run.outcomes.items() if name not in ("passed", "accepted", "not run")
    }
    if failed_by_outcome:
        lines.append("of which " + ", ".join(f"{count:,} {name}" for name, count in failed_by_outcome.items()))
    lines += _suspicious(run, limit)
    flaky = [result for result in run.results if result.flaky]
    if flaky:
        lines.append(f"{len(flaky):,} flaky: {', '.join(short_id(one.id) for one in flaky[:limit])}")
    lines += [f"note: {note}" for note in run.notes]
    groups = failures_by_cause(run.results)
    if groups:
        lines += ["", _failures(groups, limit, paint)]
    not_run = _not_run(run.results)
    if not_run:
        lines += ["", *not_run]
    if any(result.timing is not None for result in run.results):
        lines += ["", _timings(run.results, limit, paint)]
    if run.results:
        lines += ["", paint(how_judged(run), "dim")]
    return "\n".join(lines)


def _title(run: SweepRun) -> str:
    version = f" ({run.backend_version})" if run.backend_version else ""
    state = "" if run.finished else ", interrupted: finish it with --resume"
    return (
        f"run {run.run} on {run.backend}{version}: {many(len(run.results), 'vector')}, "
        f"{show_seconds(run.elapsed_s)}{state}"
    )


def _failures(groups: dict[str, list[VectorResult]], limit: int, paint: Paint) -> str:
    lines = [["vectors", "ops", "cause", "example"]]
    for cause, group in list(groups.items())[:limit]:
        ops = sorted({result.op for result in group})
        shown = ops[0] if len(ops) == 1 else f"{ops[0]} and {len(ops) - 1} more"
        lines.append([f"{len(group):,}", shown, _cut(cause), short_id(group[0].id)])
    if len(groups) > limit:
        lines.append(["", "", f"{many(len(groups) - limit, 'more cause')}; --json has all", ""])
    return aligned(lines, right=(0,), paint=paint)


def _cut(text: str, longest: int = 90) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _not_run(results: Iterable[VectorResult]) -> list[str]:
    reasons: dict[str, int] = {}
    for result in results:
        if result.status is Status.NOT_RUN:
            reasons[result.detail] = reasons.get(result.detail, 0) + 1
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"{count:,} not run: {_cut(reason, 110)}" for reason, count in ranked[:_SHOWN]]
    return lines + ([f"{len(ranked) - _SHOWN} more reasons"] if len(ranked) > _SHOWN else [])


def _timings(results: Sequence[VectorResult], limit: int, paint: Paint) -> str:
    timed = [(result, result.timing) for result in results if result.timing is not None]
    timed.sort(key=lambda pair: -pair[1].median_s)
    lines = [["op", "median", "MAD", "eager", "id"]]
    for result, timing in timed[:limit]:
        eager = "-" if timing.eager_median_s is None else show_seconds(timing.eager_median_s)
        lines.append([result.op, show_seconds(timing.median_s), show_seconds(timing.mad_s), eager, short_id(result.id)])
    return aligned(lines, right=(1, 2, 3), paint=paint)


def side_by_side_text(history: SweepHistory, *, limit: int = _SHOWN, paint: Paint = plain) -> str:
    """The newest run of each backend: passed of all, op by op, the worst first."""
    backends = list(history.newest)
    lines = [["op", "calls", *backends]]
    rows = op_rows(history)
    for row in rows[:limit]:
        cells = []
        for backend in backends:
            counts = row.by_backend.get(backend)
            kind = " accepted" if backend in row.accepting else ""
            cells.append("-" if counts is None else f"{counts[0]} of {counts[0] + counts[1]}{kind}")
        lines.append([row.op, f"{row.calls:,}", *cells])
    if len(rows) > limit:
        lines.append([many(len(rows) - limit, "more op"), "", *["" for _ in backends]])
    return aligned(lines, right=range(1, len(backends) + 2), paint=paint)


def vector_text(history: Sequence[tuple[SweepRun, VectorResult]], call: str, paint: Paint = plain) -> str:
    """One vector through all runs, with the evidence of its last failure."""
    last = history[-1][1]
    lines = [f"{last.id}", f"{last.op}({call})" if call else last.op, ""]
    rows = [["run", "backend", "status", "outcome", "time", "details"]]
    for run, result in history:
        rows.append(
            [
                run.run,
                run.backend,
                result.status.value,
                result.outcome.value,
                show_seconds(result.elapsed_s),
                result.detail,
            ]
        )
    lines.append(aligned(rows, paint=paint))
    failure = next((result for _, result in reversed(history) if result.status in FAILED), None)
    if failure is not None:
        evidence = (failure.traceback or failure.last_output).strip()
        lines += ["", evidence] if evidence else []
    return "\n".join(lines)


def generate_text(summary: GenerateSummary) -> str:
    """The vectors that were generated: how many, how long they take, why some are invalid."""
    suites = ", ".join(f"{count:,} in {suite}" for suite, count in summary.suites.items())
    lines = [f"{many(summary.vectors, 'vector')} of {many(summary.modules, 'module')} ({suites or 'no suite'})"]
    lines.append(f"{summary.valid:,} are valid and take about {show_seconds(summary.expected_s)}")
    if summary.budget:
        clusters, calls = summary.clusters, summary.calls
        lines.append(
            f"in the budget of {summary.budget}: {clusters.covered:,} of {clusters.all:,} clusters, "
            f"{calls.covered:,} of {many(calls.all, 'call')}; {many(summary.left_out, 'vector')} omitted"
        )
    lines += [f"{count:,} invalid: {reason}" for reason, count in summary.invalid.items()]
    return "\n".join(lines)


def vectors_text(vectors: Sequence[Vector]) -> str:
    """One line for each vector that would run."""
    lines = [
        f"{short_id(vector.id)}  {vector.suite}  {vector.module}"
        + (f"  {vector.change}" if vector.change else "")
        + (f"  invalid: {vector.reason}" if vector.reason else "")
        for vector in vectors
    ]
    return "\n".join([*lines, many(len(vectors), "vector")])


def imported_text(vectors: Sequence[Vector]) -> str:
    """How many vectors of another tool can run here, and why the others cannot."""
    lines = [f"{many(len(vectors), 'vector')}, {sum(not one.reason for one in vectors):,} of them can run"]
    reasons = Counter(one.reason for one in vectors if one.reason)
    return "\n".join(lines + [f"{count:6,}  {reason}" for reason, count in reasons.most_common()])


def comparison_text(found: RunComparison) -> str:
    """Two runs: how many vectors changed, and the first of each kind."""
    lines = [
        f"{found.first} -> {found.second}: {len(found.regressions):,} regressions, {len(found.fixed):,} fixed, "
        f"{found.still_failing:,} still fail, {found.still_passing:,} still pass",
        f"{len(found.slower):,} slower, {len(found.faster):,} faster; {found.only_first:,} only in the first, "
        f"{found.only_second:,} only in the second, {found.not_comparable:,} not run in one of them",
    ]
    if found.perf is not None:
        lines += perf_lines(found.perf)
    for title, pairs in (
        ("regressions", found.regressions),
        ("new vectors that fail", found.new_failures),
        ("fails differently", found.other_failure),
        ("fixed", found.fixed),
    ):
        if pairs:
            lines += ["", f"{title}:", *map(_pair_line, pairs[:_SHOWN])]
            lines += [f"  {len(pairs) - _SHOWN:,} more; --json has all"] if len(pairs) > _SHOWN else []
    return "\n".join(lines)


def history_text(found: HistorySummary) -> str:
    """Since when vectors fail, and which are flaky."""
    lines = [
        f"{many(found.runs, 'run')}: "
        f"{many(len(found.first_bad), 'vector fails', 'vectors fail')}, {len(found.flaky):,} are flaky"
    ]
    if found.first_bad:
        lines += ["", "failing since:", *(_first_bad_line(one) for one in found.first_bad[:_SHOWN])]
        more = len(found.first_bad) - _SHOWN
        lines += [f"  {more:,} more; --json has all"] if more > 0 else []
    if found.flaky:
        lines += ["", "flaky:"]
        lines += [
            f"  {short_id(one.id)}  {one.op} on {one.backend}: failed in {one.failed} of {many(one.runs, 'run')}"
            + (", at one commit" if one.same_commit else "")
            for one in found.flaky[:_SHOWN]
        ]
    return "\n".join(lines)


def _first_bad_line(one: FirstBad) -> str:
    since = one.commit[:_COMMIT] or one.run
    good = f", passed at {one.good_commit[:_COMMIT] or one.good_run}" if one.good_run else ", never passed"
    return f"  {short_id(one.id)}  {one.op} on {one.backend}: first bad {since}{good}  {one.detail}".rstrip()


def perf_lines(perf: PerfComparison) -> list[str]:
    """Ops and configurations whose times changed, with their confidence intervals."""
    judged = (
        f"{many(len(perf.ops), 'op')} and {many(len(perf.configurations), 'configuration')} compared by their times"
    )
    overall = "" if perf.overall is None else f", median ratio {perf.overall:.2f}"
    few = f"; {many(perf.not_judged, 'vector has', 'vectors have')} too few rounds" if perf.not_judged else ""
    lines = [judged + overall + few]
    for verdict in ("slower", "faster"):
        changed = [one for one in (*perf.ops, *perf.configurations) if one.verdict == verdict]
        lines += ["", f"{verdict}:", *map(_change_line, changed[:_SHOWN])] if changed else []
        lines += [f"  {len(changed) - _SHOWN:,} more; --json has all"] if len(changed) > _SHOWN else []
    return lines


def _change_line(change: Change) -> str:
    what = short_id(change.id) if change.id else f"all {many(change.configurations, 'configuration')}"
    interval = f"99 % confidence {change.low:.2f} to {change.high:.2f}"
    return f"  {change.op}  {what}  {change.ratio:.2f}x ({interval}, p = {change.p_value:.1g})"


def _pair_line(pair: Pair) -> str:
    times = ""
    if pair.before_s is not None and pair.after_s is not None and pair.ratio is not None:
        times = f"  {show_seconds(pair.before_s)} -> {show_seconds(pair.after_s)} ({pair.ratio:.2f}x)"
    detail = f"  {pair.detail}" if pair.detail else ""
    return f"  {short_id(pair.id)}  {pair.op}  {pair.before} -> {pair.after}{times}{detail}"


def retrace_text(summary: RetraceSummary) -> str:
    """How many vectors ran what was traced, and those that did not."""
    lines = [f"run {summary.run}: " + ", ".join(f"{count:,} {name}" for name, count in summary.counts.items())]
    if summary.left_out:
        lines.append(f"{summary.left_out:,} omitted: not run, or from a sweep module")
    wrong = [row for row in summary.vectors if row.result != "match"]
    for row in wrong[:_SHOWN]:
        lines.append(f"  {short_id(row.id)}  {row.op}  {row.result}: {'; '.join(row.differences)}")
    if len(wrong) > _SHOWN:
        lines.append(f"  {len(wrong) - _SHOWN:,} more; --json has all")
    return "\n".join(lines)
