"""torchstone trace TARGET: every op that a test, script or model really runs, into the database."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from torchstone.cli.db_options import command_line, database_address, db_option, open_store, with_database
from torchstone.cli.model_options import ModelRequest, model_options
from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError

if TYPE_CHECKING:
    from torchstone.configs.exchange import Unread
    from torchstone.record.op_log import OpLog, TracedSource

SCHEMA = "torchstone/trace_summary/1"
_MOST_UNREAD = 3


@click.command()
@model_options
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
@click.option(
    "--as",
    "kind",
    type=click.Choice(["pytest", "script", "model"]),
    help="What MODEL is, where its name does not tell.",
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
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="Look at the values of so many calls of each configuration; 0 looks at none.",
)
@click.option("--no-ttnn", is_flag=True, help="Leave ttnn alone where it is installed.")
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, request: ModelRequest, **given: Any) -> int:
    """Run a test, a script or a model and keep every op it calls.

    MODEL is a pytest node (tests/test_net.py::test_forward), a script with its arguments after --, or anything that
    `torchstone inspect` takes. It runs on real values in a process of its own. What is seen goes into the database:
    each distinct call of an op once, with shapes, strides, what the values were like, where it was called, how often.
    Where ttnn is installed, its operations are recorded by its own tracer and added, too.

    Exit code 1 when a test, the script or the model failed; what failed is not kept unless --keep-failing is given.
    """
    database = database_address(given["database"])
    if "://" in database or Path(database).is_file():
        open_store(database).close()  # a database that cannot be used is told before anything runs
    with step(f"tracing {request.model}", session):
        log, unread = _traced(request, given)
    for note in () if session.quiet else log.notes:
        click.echo(f"note: {note}", err=True)
    kept = log.kept(keep_failing=given["keep_failing"])
    new, name = _add(log, given)
    if given["folder"] is not None:
        path = _keep_raw(log, given["folder"])
        if not session.quiet:
            click.echo(f"wrote {path}", err=True)
    summary = _summary(log, kept, new, name)
    click.echo(_document(summary) if given["as_json"] else _text(summary))
    if new and not session.quiet:
        click.echo(f"next: {with_database('torchstone ops', given['database'])}", err=True)
    failed = any(source.ending.value == "failed" for source in log.sources)
    return EXIT_FINDINGS if failed or unread or not kept else EXIT_FINE


def _traced(request: ModelRequest, given: dict[str, Any]) -> "tuple[OpLog, tuple[Unread, ...]]":
    """What the target called, and the files of ttnn's tracer that could not be read."""
    from msgspec.structs import replace

    from torchstone.capture.trace_target import kind_of
    from torchstone.capture.tracing import TraceRequest, trace_in_child
    from torchstone.configs.ttnn_live import with_ttnn_calls
    from torchstone.record.op_log import TargetKind

    kind = TargetKind(given["kind"]) if given["kind"] else kind_of(request.model, given["arguments"])
    if kind is TargetKind.MODEL and given["arguments"]:
        first = given["arguments"][0]
        msg = f"{request.model} is a model and takes no arguments ({first}); if it is a script, add --as script"
        raise InputError(msg)
    run = f"{datetime.now(tz=UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"
    with _ttnn_folder(given["folder"], run) as ttnn:
        log = trace_in_child(
            TraceRequest(
                kind=kind,
                target=request.model,
                arguments=given["arguments"],
                run=run,
                looks=given["looks"],
                ttnn="" if given["no_ttnn"] else str(ttnn.resolve()),
                inputs=request.inputs,
                options=asdict(request.options),
                backward=request.backward,
                command=command_line(),
            )
        )
        log, unread = with_ttnn_calls(log, ttnn)
    return replace(log, notes=(*log.notes, *_told(unread))), unread


@contextmanager
def _ttnn_folder(kept: Path | None, run: str) -> Iterator[Path]:
    """Where ttnn's tracer writes: beside the raw trace where that is kept."""
    if kept is not None:
        yield kept / f"{run}.ttnn"
        return
    with TemporaryDirectory(prefix="torchstone-ttnn-") as folder:
        yield Path(folder) / run


def _told(unread: "tuple[Unread, ...]") -> Iterator[str]:
    if unread:
        some = ", ".join(f"{part.where}: {part.reason}" for part in unread[:_MOST_UNREAD])
        more = ", ..." if len(unread) > _MOST_UNREAD else ""
        yield f"{len(unread)} files of ttnn's tracer cannot be read, so their calls are missing: {some}{more}"


def _keep_raw(log: "OpLog", folder: Path) -> Path:
    from torchstone.record.codec import save

    path = folder / f"{log.run}.json"
    try:
        save(path, log)
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}; choose another --store"
        raise InputError(msg) from error
    return path


def _add(log: "OpLog", given: dict[str, Any]) -> tuple[int, str]:
    """Add what counts to the database; gives the number of configurations it did not have, and its name."""
    from torchstone.configs.raw_trace import what_counts
    from torchstone.store.address import without_password

    address = database_address(given["database"])
    counting = what_counts(log, keep_failing=given["keep_failing"])
    if not counting.runs:
        return 0, without_password(address)
    try:
        with open_store(address, create=True) as store:
            return store.add(counting.seen, runs=counting.runs).new, store.name
    except InputError as error:  # what ran for hours is not thrown away
        path = _keep_raw(log, given["folder"] or Path(gettempdir()))
        again = with_database(f"torchstone db import {path}", given["database"])
        msg = f"{error}; the trace is kept, add it later with `{again}`"
        raise InputError(msg) from error


def _summary(log: "OpLog", kept: "tuple[TracedSource, ...]", new: int, database: str) -> dict[str, Any]:
    seen = {one.configuration: one for source in kept for one in source.configurations}
    roles: dict[str, int] = {}
    for configuration in seen:
        role = log.roles[configuration.op]
        roles[role] = roles.get(role, 0) + 1
    return {
        "schema": SCHEMA,
        "target": log.target,
        "kind": log.kind.value,
        "run": log.run,
        "database": database,
        "calls": sum(source.calls for source in kept),
        "operations": len({configuration.op for configuration in seen}),
        "configurations": len(seen),
        "new": new,
        "roles": dict(sorted(roles.items())),
        "ttnn": _ttnn_share(kept) if "ttnn" in log.versions else None,
        "sources": [
            {
                "name": source.name,
                "ending": source.ending.value,
                "kept": source in kept,
                "calls": source.calls,
                "configurations": len(source.configurations),
                "detail": source.detail,
            }
            for source in log.sources
        ],
        "notes": list(log.notes),
    }


def _ttnn_share(kept: "tuple[TracedSource, ...]") -> dict[str, int]:
    """How much of what was kept are operations of ttnn."""
    seen = [one for source in kept for one in source.configurations if one.configuration.op.startswith("ttnn.")]
    return {
        "operations": len({one.configuration.op for one in seen}),
        "configurations": len({one.configuration for one in seen}),
        "calls": sum(one.calls for one in seen),
    }


def _document(summary: dict[str, Any]) -> bytes:
    import msgspec

    return msgspec.json.encode(summary)


def _text(summary: dict[str, Any]) -> str:
    roles = ", ".join(f"{count} {role}" for role, count in summary["roles"].items())
    lines = [
        f"{source['ending']:8}{source['name']}: {source['calls']:,} calls, {source['configurations']:,} configurations"
        + ("" if source["kept"] else ", not kept")
        + (f"\n        {source['detail']}" if source["detail"] else "")
        for source in summary["sources"]
    ]
    lines.append(
        f"{summary['calls']:,} calls of {summary['operations']:,} operators, "
        f"{summary['configurations']:,} configurations" + (f" ({roles})" if roles else "")
    )
    if (ttnn := summary["ttnn"]) is not None:
        lines.append(
            f"{ttnn['operations']:,} ttnn operations among them: {ttnn['calls']:,} calls, "
            f"{ttnn['configurations']:,} configurations"
        )
    lines.append(f"{summary['new']:,} configurations are new in {summary['database']}")
    return "\n".join(lines)
