"""Every vector of a sweep with its history: how it ended in each run."""

from torchstone.record import codec
from torchstone.record.vector import SweepHistory
from torchstone.report.section import Column, ReportFolder, SectionView, Shown, Table
from torchstone.report.sections.sweep import FILE
from torchstone.report.sweep_text import short_id
from torchstone.report.view.sweeps import VectorRow, vector_rows

NAME = "vectors"
MOST_RUNS = 8


def build(folder: ReportFolder) -> SectionView:
    """The view of the vectors of the newest runs."""
    history = codec.load(folder.path / FILE, SweepHistory)
    runs = history.runs[-MOST_RUNS:]
    rows = vector_rows(runs)
    older = len(history.runs) - len(runs)
    columns = [
        Column(name="id", title="Vector", values=[short_id(row.id) for row in rows], shown=Shown.TEXT),
        Column(name="op", title="Operator", values=[row.op for row in rows], shown=Shown.TEXT),
        Column(name="suite", title="Suite", values=[row.suite for row in rows], shown=Shown.TEXT),
        Column(name="call", title="Call", values=[history.texts.get(row.id, "") for row in rows], shown=Shown.TEXT),
        Column(
            name="outcome", title="Latest outcome", values=[row.last.outcome.value for row in rows], shown=Shown.STATUS
        ),
        Column(name="state", title="Verdict", values=[_state(row) for row in rows], shown=Shown.STATUS),
        Column(
            name="noise", title="Times the noise", values=[_number(row, "noise_multiple") for row in rows],
            shown=Shown.NUMBER,
        ),
        Column(name="pcc", title="PCC", values=[_number(row, "pcc") for row in rows], shown=Shown.NUMBER),
        Column(name="ulp", title="Max ULP", values=[_number(row, "max_ulp") for row in rows], shown=Shown.NUMBER),
        Column(name="calls", title="Calls", values=[row.calls for row in rows], shown=Shown.COUNT),
        Column(name="rate", title="Failure rate", values=[row.failure_rate for row in rows], shown=Shown.NUMBER),
        Column(name="median", title="Median time", values=[_median(row) for row in rows], shown=Shown.SECONDS),
        Column(name="detail", title="Details", values=[row.last.detail for row in rows], shown=Shown.TEXT),
    ]  # fmt: skip
    if len(runs) > 1:
        columns += [
            Column(
                name=run.run,
                title=f"{run.backend} {run.run[4:13]}",
                values=[row.words[number] or "not run" for row in rows],
                shown=Shown.STATUS,
            )
            for number, run in enumerate(runs)
        ]
    return SectionView(
        name=NAME,
        title="Vectors",
        document={
            "vectors": [
                {
                    "id": row.id,
                    "op": row.op,
                    "suite": row.suite,
                    "outcome": row.last.outcome.value,
                    "history": row.words,
                }
                for row in rows
            ]
        },
        tables=(Table(name="sweep.vectors", title="Vectors, failures first", columns=tuple(columns)),),
        notes=(f"{older} older runs are not shown",) if older else (),
    )


def _state(row: VectorRow) -> str:
    return str((row.last.verdict or {}).get("state") or "not run")


def _number(row: VectorRow, name: str) -> float | None:
    found = (row.last.verdict or {}).get(name)
    return float(found) if isinstance(found, int | float) else None


def _median(row: VectorRow) -> float | None:
    return None if row.last.timing is None else row.last.timing.median_s
