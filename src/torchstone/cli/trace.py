"""torchstone trace TARGET: record every op that a test, script or model calls in the database."""

from pathlib import Path

import click

from torchstone.cli.database_options import command_line, db_option
from torchstone.cli.model_options import ModelRequest, model_options
from torchstone.cli.options import Session, common_options, json_option, request_from
from torchstone.cli.progress import TerminalProgress
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

SCHEMA = "torchstone/trace_summary/1"


@click.command()
@model_options
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
@click.option(
    "--as",
    "kind",
    type=click.Choice(["pytest", "script", "model"]),
    help="What MODEL is, where its name is ambiguous.",
)
@click.option("--keep-failing", is_flag=True, help="Keep the calls of tests and programs that failed, too.")
@db_option
@click.option(
    "--store",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the raw trace in this folder.",
)
@click.option(
    "--looks",
    "samples",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    metavar="N",
    help="Inspect the values of up to N calls of each configuration.",
)
@click.option("--chains", is_flag=True, help="Record chains of 2 to 5 ops that feed each other, for sweeps, too.")
@click.option(
    "--python",
    default="",
    metavar="ENV",
    help="Run a test or script of ttnn in this environment, made by `torchstone ttnn setup`, on --device.",
)
@click.option(
    "--device",
    default="",
    metavar="BOARD",
    help="The board that it finds: n150, n300, t3k, galaxy, p100, p150, p300, a descriptor.yaml (mock devices), or "
    "hardware.  [default, with --python: n150]",
)
@click.option("--no-ttnn", is_flag=True, help="Do not record ttnn operations.")
@json_option
@common_options
@click.pass_obj
def command(
    session: Session, /, *, request: ModelRequest, kind: str | None, no_ttnn: bool, as_json: bool, **fields: object
) -> int:
    """Run a test, a script or a model, and record every op that it calls.

    MODEL is a pytest node (tests/test_net.py::test_forward), a script with its arguments after --, or any model that
    `torchstone inspect` accepts. It runs on real tensors in a process of its own. The database keeps each distinct
    configuration of an op once: shapes, strides, ranges of values, where it was called and how often. Where ttnn is
    installed, its own tracer records its operations, too. With --python and --device, a test or script that calls ttnn
    runs on a mock board: its configurations, source lines and the memory of the device are recorded.

    The exit code is 1 if a test, the script or the model failed. Calls of a failed target are not kept unless
    --keep-failing is given.
    """
    from dataclasses import replace

    from torchstone.record.config import TargetKind
    from torchstone.report.database_text import trace_text
    from torchstone.report.json_document import json_document
    from torchstone.workflows.database import with_database
    from torchstone.workflows.trace_ops import TraceRequest, trace_ops

    progress = TerminalProgress(session)
    wanted = request_from(
        TraceRequest,
        {
            "model": replace(request, command=command_line()),
            "kind": TargetKind(kind) if kind else None,
            "ttnn": not no_ttnn,
            **fields,
        },
    )
    result = trace_ops(wanted, progress)
    click.echo(json_document(SCHEMA, result.summary) if as_json else trace_text(result.summary))
    if result.summary.new:
        progress.note(f"next: {with_database('torchstone ops', wanted.database)}")
    return EXIT_FINDINGS if result.has_findings else EXIT_FINE
