"""A sweep: the newest run of each backend side by side, and what failures have in common."""

from torchstone.record import codec
from torchstone.record.vector import FAILED, SweepHistory, SweepRun
from torchstone.report.section import Card, Column, ReportFolder, SectionView, Shown, Table, Tone
from torchstone.report.sweep_text import failures_by_cause, how_judged, short_id
from torchstone.report.view.sweeps import OpRow, op_rows, word_for
from torchstone.sweep.history import first_bad, flaky_vectors, trend_of

NAME = "sweep"
FILE = "sweep_history.json"
_TREND_RUNS = 8
_COMMIT = 10  # characters of a commit


def build(folder: ReportFolder) -> SectionView:
    """The view of all runs."""
    history = codec.load(folder.path / FILE, SweepHistory)
    newest = history.newest
    rows = op_rows(history)
    return SectionView(
        name=NAME,
        title="Sweep",
        document={"runs": [_run_document(run) for run in history.runs]},
        cards=tuple(_card(run) for run in newest.values()),
        tables=(
            _operators(rows, list(newest)),
            _causes(newest),
            _first_bad(history),
            _flaky(history),
            _trend(history, by="op", title="Trend by operator"),
            _trend(history, by="model", title="Trend by model"),
            _runs(history),
        ),
        notes=(*(f"{run.backend}: {note}" for run in newest.values() for note in run.notes), *_how_judged(newest)),
    )


def _how_judged(newest: dict[str, SweepRun]) -> tuple[str, ...]:
    """By which rules the values of these runs were judged, each once."""
    return tuple(dict.fromkeys(how_judged(run) for run in newest.values()))


def _run_document(run: SweepRun) -> dict[str, object]:
    return {
        "run": run.run,
        "backend": run.backend,
        "version": run.backend_version,
        "started": run.started,
        "finished": run.finished,
        "elapsed_s": run.elapsed_s,
        "counts": run.counts,
        "outcomes": run.outcomes,
    }


def _card(run: SweepRun) -> Card:
    failed = sum(result.status in FAILED for result in run.results)
    passed, accepted = run.counts.get("PASS", 0), run.counts.get("ACCEPTED", 0)
    words = [f"{count:,} {name}" for name, count in run.outcomes.items() if name != "passed"]
    detail = ", ".join([*words, *([f"{len(run.suspicious):,} suspicious"] if run.suspicious else [])])
    if accepted:
        return Card(
            title=f"Sweep on {run.backend}",
            value=f"{accepted:,} of {len(run.results):,} accepted",
            detail=f"{detail}; no values were compared",
            tone=Tone.BAD if failed else Tone.PLAIN,
        )
    return Card(
        title=f"Sweep on {run.backend}",
        value=f"{passed:,} of {len(run.results):,} pass",
        detail=detail or run.backend_version,
        tone=Tone.BAD if failed else Tone.GOOD if passed else Tone.WARNING,
    )


def _operators(rows: list[OpRow], backends: list[str]) -> Table:
    columns = [
        Column(name="op", title="Operator", values=[row.op for row in rows], shown=Shown.TEXT),
        Column(name="vectors", title="Vectors", values=[row.vectors for row in rows], shown=Shown.COUNT),
        Column(name="calls", title="Calls", values=[row.calls for row in rows], shown=Shown.COUNT),
    ]
    for backend in backends:
        by_row = [row.by_backend.get(backend) for row in rows]
        words = [word_for(row.by_backend.get(backend), accepted=backend in row.accepting) for row in rows]
        columns.append(Column(name=backend, title=backend, values=words, shown=Shown.STATUS))
        columns.append(
            Column(
                name=f"{backend}.failed",
                title="Failed",
                values=[None if counts is None else counts[1] for counts in by_row],
                shown=Shown.COUNT,
            )
        )
    return Table(
        name="sweep.operators", title="Operators, latest run of each backend", columns=tuple(columns),
        empty="No vector was run.",
    )  # fmt: skip


def _causes(newest: dict[str, SweepRun]) -> Table:
    found = [
        (backend, cause, group)
        for backend, run in newest.items()
        for cause, group in failures_by_cause(run.results).items()
    ]
    return Table(
        name="sweep.causes",
        title="Failures by cause",
        empty="No failures.",
        columns=(
            Column(name="backend", title="Backend", values=[one for one, _, _ in found], shown=Shown.TEXT),
            Column(name="vectors", title="Vectors", values=[len(group) for _, _, group in found], shown=Shown.COUNT),
            Column(name="cause", title="Cause", values=[cause for _, cause, _ in found], shown=Shown.TEXT),
            Column(
                name="ops",
                title="Operators",
                values=[", ".join(sorted({result.op for result in group})) for _, _, group in found],
                shown=Shown.TEXT,
            ),
            Column(
                name="example",
                title="Example",
                values=[short_id(group[0].id) for _, _, group in found],
                shown=Shown.TEXT,
            ),
        ),
    )


def _first_bad(history: SweepHistory) -> Table:
    found = first_bad(history)
    return Table(
        name="sweep.first_bad",
        title="Failing since",
        empty="No vector fails.",
        columns=(
            Column(name="op", title="Operator", values=[one.op for one in found], shown=Shown.TEXT),
            Column(name="vector", title="Vector", values=[short_id(one.id) for one in found], shown=Shown.TEXT),
            Column(name="backend", title="Backend", values=[one.backend for one in found], shown=Shown.TEXT),
            Column(
                name="bad", title="First bad", values=[_point(one.commit, one.run) for one in found], shown=Shown.TEXT
            ),
            Column(
                name="good",
                title="Last good",
                values=[_point(one.good_commit, one.good_run) or "never passed" for one in found],
                shown=Shown.TEXT,
            ),
            Column(name="calls", title="Calls", values=[one.calls for one in found], shown=Shown.COUNT),
        ),
    )


def _flaky(history: SweepHistory) -> Table:
    found = flaky_vectors(history)
    return Table(
        name="sweep.flaky",
        title="Flaky vectors",
        empty="No vector is flaky.",
        columns=(
            Column(name="op", title="Operator", values=[one.op for one in found], shown=Shown.TEXT),
            Column(name="vector", title="Vector", values=[short_id(one.id) for one in found], shown=Shown.TEXT),
            Column(name="backend", title="Backend", values=[one.backend for one in found], shown=Shown.TEXT),
            Column(name="runs", title="Runs", values=[one.runs for one in found], shown=Shown.COUNT),
            Column(name="failed", title="Failed", values=[one.failed for one in found], shown=Shown.COUNT),
            Column(name="flips", title="Changes", values=[one.flips for one in found], shown=Shown.COUNT),
        ),
    )


def _trend(history: SweepHistory, *, by: str, title: str) -> Table:
    """One row for each name and backend, most failures last time first; a column for each of the newest runs."""
    points = trend_of(history, by=by)
    shown = history.runs[-_TREND_RUNS:]
    failed = {(point.name, point.backend, point.run): point.failed for point in points}
    latest = {(point.name, point.backend): point.failed for point in points}
    names = sorted(latest, key=lambda name: (-latest[name], name))
    columns = [
        Column(name=by, title=by.capitalize(), values=[name for name, _ in names], shown=Shown.TEXT),
        Column(name="backend", title="Backend", values=[backend for _, backend in names], shown=Shown.TEXT),
    ]
    for run in shown:
        values = [failed.get((name, backend, run.run)) for name, backend in names]
        columns.append(
            Column(name=run.run, title=f"Failed, {_point(run.commit, run.run)}", values=values, shown=Shown.COUNT)
        )
    return Table(name=f"sweep.trend_{by}", title=title, empty="No vector was run.", columns=tuple(columns))


def _point(commit: str, run: str) -> str:
    return commit[:_COMMIT] or run


def _runs(history: SweepHistory) -> Table:
    runs = history.runs[::-1]
    return Table(
        name="sweep.runs",
        title="Runs, newest first",
        columns=(
            Column(name="run", title="Run", values=[run.run for run in runs], shown=Shown.TEXT),
            Column(name="backend", title="Backend", values=[run.backend for run in runs], shown=Shown.TEXT),
            Column(name="version", title="Version", values=[run.backend_version for run in runs], shown=Shown.TEXT),
            Column(name="vectors", title="Vectors", values=[len(run.results) for run in runs], shown=Shown.COUNT),
            Column(
                name="failed",
                title="Failed",
                values=[sum(result.status in FAILED for result in run.results) for run in runs],
                shown=Shown.COUNT,
            ),
            Column(name="elapsed", title="Time", values=[run.elapsed_s for run in runs], shown=Shown.SECONDS),
            Column(
                name="state",
                title="State",
                values=["finished" if run.finished else "interrupted" for run in runs],
                shown=Shown.TEXT,
            ),
        ),
    )
