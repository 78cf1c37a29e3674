"""torchstone db export: the database, or a part of it, as a file that other tools read."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.db_options import db_option, filter_options, open_store, query_of
from torchstone.cli.options import Session, common_options
from torchstone.errors import InputError

if TYPE_CHECKING:
    from torchstone.configs.exchange import Exported
    from torchstone.record.config import SeenConfiguration, TraceRun

FORMATS = ("jsonl", "ttnn", "aten", "pytest")


@click.command(short_help="A file for other tools.")
@click.argument("output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="torchstone's own lines, ttnn master JSON, aten text, or a pytest file; from the ending when left out.",
)
@click.option("--op", metavar="NAME", help="Only this op.")
@filter_options
@db_option
@common_options
@click.pass_obj
def command(session: Session, /, output: Path, *, form: str | None, database: str | None, **chosen: Any) -> None:
    """Write the configurations that fit to FILE.

    FILE.jsonl is torchstone's own format: the same contents give the same bytes. FILE.json is ttnn master JSON, in
    which configurations from such files keep their hash. FILE.txt is aten text; with --source naming one text trace
    that was imported, it is that file again, byte for byte. FILE.py is a pytest file that needs only torch.
    """
    from torchstone.record.codec import write_atomically

    form = form or _form_of(output)
    with open_store(database) as store:
        query = query_of(store, **chosen)
        exported = _exported(form, store.configurations(query), _runs_of(store.runs(), query.sources))
    if not exported.configurations:
        msg = "no configuration fits, so nothing was written; `torchstone ops` shows what there is"
        raise InputError(msg)
    try:
        write_atomically(output, exported.text.encode())
    except OSError as error:
        msg = f"cannot write {output}: {error.strerror or error}"
        raise InputError(msg) from error
    if not session.quiet:
        click.echo(f"wrote {output}: {exported.configurations} configurations", err=True)
        for kind, count in exported.left_out.items():
            click.echo(f"  left out: {count} ({kind})", err=True)


def _form_of(output: Path) -> str:
    forms = {".jsonl": "jsonl", ".json": "ttnn", ".txt": "aten", ".py": "pytest"}
    if output.suffix not in forms:
        msg = f"the ending of {output.name} names no format; give --format"
        raise click.UsageError(msg)
    return forms[output.suffix]


def _runs_of(runs: "Sequence[TraceRun]", sources: tuple[str, ...] | None) -> "list[TraceRun]":
    return [run for run in runs if sources is None or run.source in sources]


def _exported(form: str, seen: "Iterable[SeenConfiguration]", runs: "list[TraceRun]") -> "Exported":
    from torchstone.configs.aten_text import export_aten
    from torchstone.configs.own_lines import export_lines
    from torchstone.configs.pytest_write import write_pytest
    from torchstone.configs.ttnn_write import write_master

    match form:
        case "jsonl":
            return export_lines(runs, seen)
        case "ttnn":
            return write_master(seen)
        case "aten":
            return export_aten(runs, seen)
        case _:
            return write_pytest(seen)
