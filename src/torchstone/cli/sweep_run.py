"""torchstone sweep run: vectors on a backend, each in a process of its own."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.db_options import db_option
from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.sweep_options import executor_options, folder_option, hint
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError

if TYPE_CHECKING:
    from torchstone.record.vector import SweepRun, Vector
    from torchstone.sweep.run_folder import RunFolder


@click.command(short_help="Run vectors on a backend.")
@click.option("--backend", default="eager", show_default=True, metavar="NAME", help="What to run on.")
@click.option(
    "--backend-option", "backend_options", multiple=True, metavar="NAME=VALUE", help="An option of the backend."
)
@click.option("--python", metavar="PATH", default="", help="The interpreter of the backend's environment.")
@click.option("--module-name", "modules", multiple=True, metavar="NAME", help="Only this module, or all that begin so.")
@click.option("--op", "ops", multiple=True, metavar="OP", help="Only this op; the same as --module-name.")
@click.option("--suite", "--suite-name", "suites", multiple=True, metavar="NAME", help="Only this suite.")
@click.option("--vector-id", default="", metavar="ID", help="Only this vector; the beginning of its id is enough.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Vectors at the same time.")
@click.option("--timeout", type=click.FloatRange(min=0.1), metavar="SECONDS", help="For each vector; 30 without it.")
@click.option(
    "--memory-limit", metavar="SIZE", help="For each vector, such as 2GiB; else a fair share of what is free."
)
@click.option("--retries", type=click.IntRange(min=0), default=1, show_default=True, help="After a crash or a hang.")
@click.option("--retry-all", is_flag=True, help="Run every failure again, to find those that are flaky.")
@click.option("--perf", is_flag=True, help="Measure warm runs: median and median absolute deviation.")
@click.option("--perf-runs", type=click.IntRange(min=1), default=20, show_default=True, help="Warm runs to measure.")
@click.option("--pcc", type=click.FloatRange(0, 1), help="The least PCC that passes.  [default: 0.99]")
@click.option("--rtol", type=click.FloatRange(min=0), help="Relative tolerance; by element type without it.")
@click.option("--atol", type=click.FloatRange(min=0), help="Absolute tolerance; by element type without it.")
@click.option("--strict-stride", is_flag=True, help="Outputs must have eager's strides, too.")
@click.option("--reset-command", metavar="COMMAND", default="", help="Resets the device when it stops working.")
@click.option("--tasks-per-child", type=click.IntRange(min=1), default=64, show_default=True, hidden=True)
@click.option("--dry-run", is_flag=True, help="List what would run.")
@click.option("--resume", is_flag=True, help="Go on with the newest run that was broken off.")
@click.option("--allow-empty", is_flag=True, help="Nothing to run is not a failure.")
@executor_options
@folder_option
@db_option
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, folder: Path, **given: Any) -> int:
    """Run vectors on a backend and compare each with eager PyTorch on the CPU.

    A crash, a hang or too much memory ends one vector, never the run. Every result is on disk the moment it exists;
    after a kill or Ctrl-C, --resume goes on. Exit code 1 when a vector failed, or when there was none.
    """
    run_folder, left = _resumed(folder) if given["resume"] else (None, _selected(folder, given))
    if given["dry_run"]:
        click.echo(_listing(left))
        return EXIT_FINE
    if not left and run_folder is None:
        hint(session, f"nothing to run in {folder}; `torchstone sweep generate` makes vectors")
        return EXIT_FINE if given["allow_empty"] else EXIT_FINDINGS
    from torchstone.cli.sweep_running import begin, carry_out

    if run_folder is None:
        run_folder = begin(folder, left, given)
    run = carry_out(run_folder, left, given, session)
    click.echo(_document(run) if given["as_json"] else _text(run, session))
    if not session.quiet and not given["as_json"]:
        _say_next(run, folder, session)
    return EXIT_FINDINGS if _has_failed(run) else EXIT_FINE


def _selected(folder: Path, given: dict[str, Any]) -> "list[Vector]":
    from torchstone.cli.sweep_options import unknown_name
    from torchstone.sweep.vector_folder import read_vectors, select

    files = read_vectors(folder)
    modules = [*given["modules"], *given["ops"]]
    for name in modules:
        if not select(files, modules=[name]):
            raise unknown_name("module", name, [file.module for file in files], str(folder))
    for suite in given["suites"]:
        if not select(files, modules=modules, suites=[suite]):
            known = sorted({vector.suite for file in files for vector in file.vectors})
            raise unknown_name("suite", suite, known, str(folder))
    return select(files, modules=modules, suites=given["suites"], vector_id=given["vector_id"])


def _resumed(folder: Path) -> "tuple[RunFolder, list[Vector]]":
    """The newest run that was broken off, and what is left of it."""
    from torchstone.sweep.run_folder import unfinished

    run = next(unfinished(folder), None)
    if run is None:
        msg = f"no run in {folder} was broken off; leave --resume out"
        raise InputError(msg)
    done = run.results()
    return run, [vector for vector in run.plan().vectors if vector.id not in done]


def _listing(vectors: "list[Vector]") -> str:
    from torchstone.report.vector_text import short_id

    lines = [
        f"{short_id(vector.id)}  {vector.suite}  {vector.module}"
        + (f"  {vector.change}" if vector.change else "")
        + (f"  not valid: {vector.reason}" if vector.reason else "")
        for vector in vectors
    ]
    return "\n".join([*lines, f"{len(vectors):,} vectors"])


def _document(run: "SweepRun") -> bytes:
    import msgspec

    from torchstone.record.codec import encode

    more = msgspec.json.encode({"counts": run.counts, "outcomes": run.outcomes})
    return encode(run)[:-1] + b"," + more[1:]


def _text(run: "SweepRun", session: Session) -> str:
    from torchstone.report.text import coloured, plain
    from torchstone.report.vector_text import run_text

    return run_text(run, paint=coloured if session.uses_color else plain)


def _has_failed(run: "SweepRun") -> bool:
    from torchstone.record.vector import FAILED

    return not run.finished or bool(run.notes) or any(result.status in FAILED for result in run.results)


def _say_next(run: "SweepRun", folder: Path, session: Session) -> None:
    from torchstone.record.vector import FAILED
    from torchstone.report.vector_text import short_id

    failed = next((result for result in run.results if result.status in FAILED and result.configuration), None)
    if failed is not None:
        hint(session, f"next: torchstone sweep repro {short_id(failed.id)} --dir {folder}")
    hint(session, f"next: torchstone sweep report --dir {folder} --html")
