"""torchstone sweep retrace: whether a sweep runs what the models ran."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.cli.sweep_options import folder_option, opened_executor
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

if TYPE_CHECKING:
    from torchstone.record.vector import Vector

SCHEMA = "torchstone/sweep_retrace/1"
_ENTRY = "torchstone.sweep.child.retrace:retrace"
_SHOWN = 10
_RESULTS = ("match", "diff", "missing", "not told")


@click.command(short_help="Does a sweep run what the models ran?")
@click.argument("run", required=False, default="last", metavar="[RUN]")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Vectors at the same time.")
@folder_option
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, *, run: str, jobs: int, folder: Path, as_json: bool) -> int:
    """Record again what the vectors of RUN execute, and hold it against the traced configurations.

    Every vector that ran is a match, a diff (the op was called with something else) or missing (the op was never
    called). Exit code 1 when one is a diff or missing.
    """
    from torchstone.record.vector import Status
    from torchstone.sweep.run_folder import find_run

    found = find_run(folder, run)
    plan = found.plan()
    ran = {result.id for result in found.results().values() if result.status is not Status.NOT_RUN}
    vectors = [one for one in plan.vectors if one.configuration is not None and one.id in ran]
    with step(f"recording {len(vectors):,} vectors again", session):
        told = _retraced(vectors, jobs)
    summary = _summary(plan.run.run, vectors, told, left_out=len(plan.vectors) - len(vectors))
    click.echo(_document(summary) if as_json else _text(summary))
    counts = summary["counts"]
    return EXIT_FINDINGS if counts["diff"] or counts["missing"] or not vectors else EXIT_FINE


def _retraced(vectors: "list[Vector]", jobs: int) -> dict[str, dict[str, Any]]:
    from torchstone.record.task import Ending, Limits, Task
    from torchstone.sweep.environments import backend_environment
    from torchstone.sweep.payloads import payload_of

    told: dict[str, dict[str, Any]] = {}
    environment = backend_environment("eager", {})
    with opened_executor(
        environment, jobs=jobs, limits=Limits(deadline_s=60.0), tasks_per_child=64, given={}
    ) as executor:
        for vector in vectors:
            executor.submit(Task(id=vector.id, entry=_ENTRY, payload=payload_of(vector)))
        for result in executor.results():
            answered = result.ending is Ending.ANSWERED and result.answer is not None
            why = result.evidence.error or result.ending.value
            told[result.id] = result.answer if answered else {"result": "not told", "differences": [why]}  # type: ignore[assignment]
    return told


def _summary(run: str, vectors: "list[Vector]", told: dict[str, dict[str, Any]], *, left_out: int) -> dict[str, Any]:
    rows = [{"id": vector.id, "op": vector.op, "suite": vector.suite, **told[vector.id]} for vector in vectors]
    counts = {name: sum(row["result"] == name for row in rows) for name in _RESULTS}
    return {"schema": SCHEMA, "run": run, "counts": counts, "left_out": left_out, "vectors": rows}


def _document(summary: dict[str, Any]) -> bytes:
    import msgspec

    return msgspec.json.encode(summary)


def _text(summary: dict[str, Any]) -> str:
    from torchstone.report.vector_text import short_id

    lines = [f"run {summary['run']}: " + ", ".join(f"{count:,} {name}" for name, count in summary["counts"].items())]
    if summary["left_out"]:
        lines.append(f"{summary['left_out']:,} left out: not run, or of a sweep module")
    wrong = [row for row in summary["vectors"] if row["result"] != "match"]
    for row in wrong[:_SHOWN]:
        lines.append(f"  {short_id(row['id'])}  {row['op']}  {row['result']}: {'; '.join(row['differences'])}")
    if len(wrong) > _SHOWN:
        lines.append(f"  {len(wrong) - _SHOWN:,} more; --json has all")
    return "\n".join(lines)
