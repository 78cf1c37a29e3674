"""torchstone db: the database of configurations."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.database_options import db_option, filter_options
from torchstone.cli.options import Session, common_options, json_option, request_from
from torchstone.cli.progress import TerminalProgress
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE
from torchstone.units import many
from torchstone.workflows.configs import ExportFormat
from torchstone.workflows.database import ConfigurationFilter

if TYPE_CHECKING:
    from torchstone.record.config_summary import ImportSummary

INFO_SCHEMA = "torchstone/db-info/1"
IMPORT_SCHEMA = "torchstone/db-import/1"
VERIFY_SCHEMA = "torchstone/db-verify/1"
_MOST_UNREAD = 10


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Manage the database of configurations: each call of an op once, with every place it was seen at.

    `import` reads traces and master files of other tools, `export` writes them, `merge` adds other databases. Adding
    the same data again changes nothing, and the order does not matter. `torchstone ops` shows the contents.
    """


@command.command(short_help="Show the contents of the database in numbers.")
@db_option
@json_option
@common_options
@click.pass_obj
def info(session: Session, /, *, database: str | None, as_json: bool) -> None:
    """Show the number of configurations, ops, sources and calls, and the traces that were added."""
    from torchstone.report.database_text import contents_text
    from torchstone.report.json_document import indented, json_document
    from torchstone.report.text import coloured, plain
    from torchstone.workflows.configs import read_contents

    found = read_contents(database)
    if as_json:
        traces = [{"source": run.source, "run": run.run, "format": run.format.value} for run in found.runs]
        document = json_document(INFO_SCHEMA, {"database": found.name}, found.info, {"traces": traces})
        click.echo(indented(document))
    else:
        paint = coloured if session.uses_color else plain
        click.echo(contents_text(found.name, found.info, found.runs, paint=paint))


@command.command("import", short_help="Add traces and master files of other tools.")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", default="", metavar="NAME", help="The model of a text trace, which does not name it.")
@click.option("--keep-failing", is_flag=True, help="Include the calls of tests that did not pass.")
@db_option
@json_option
@common_options
@click.pass_obj
def import_(session: Session, /, *, as_json: bool, **fields: object) -> int:
    """Add the configurations of each FILE to the database; the format is detected.

    Known formats: ttnn master JSON (all layouts), ttnn graph captures and graph reports, folders of ttnn's
    per-operation traces, text traces of aten ops, and the files of `torchstone db export` and `torchstone trace
    --store`. An argument that cannot be read is kept as text and listed. The exit code is 1 if a part of a file gave no
    configuration.
    """
    from torchstone.report.database_text import import_text
    from torchstone.report.json_document import indented, json_document
    from torchstone.workflows.configs import ImportRequest, import_files
    from torchstone.workflows.database import with_database

    request = request_from(ImportRequest, fields)
    progress = TerminalProgress(session)
    files = []
    for one in import_files(request, progress):
        files.append(one)
        if not as_json:
            click.echo(import_text(one))
        _note_unread(progress, one)
    if as_json:
        click.echo(indented(json_document(IMPORT_SCHEMA, {"files": files})))
    else:
        progress.note(f"next: {with_database('torchstone ops', request.database)}")
    return EXIT_FINDINGS if any(one.unread for one in files) else EXIT_FINE


def _note_unread(progress: TerminalProgress, summary: "ImportSummary") -> None:
    if not summary.unread:
        return
    progress.note(f"{summary.path}: {len(summary.unread)} parts could not be read:")
    for part in summary.unread[:_MOST_UNREAD]:
        progress.note(f"  {part.where}: {part.reason}")
    if len(summary.unread) > _MOST_UNREAD:
        progress.note(f"  and {len(summary.unread) - _MOST_UNREAD} more; --json lists all")


@command.command(short_help="Write configurations to a file for other tools.")
@click.argument("output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice([form.value for form in ExportFormat]),
    help="torchstone's own lines, ttnn master JSON, aten text, or a pytest file.  [default: from the suffix of FILE]",
)
@click.option("--op", metavar="NAME", help="Only this op.")
@filter_options
@db_option
@common_options
@click.pass_obj
def export(session: Session, /, *, output: Path, form: str | None, database: str | None, **filters: object) -> None:
    """Write the configurations that match to FILE.

    FILE.jsonl is torchstone's own format: equal contents give equal bytes. FILE.json is ttnn master JSON, in which
    configurations from such files keep their hash. FILE.txt is aten text; with --source naming one imported text trace,
    it is identical to that file. FILE.py is a pytest file that needs only torch.
    """
    from torchstone.workflows.configs import ExportRequest, export_configurations

    request = ExportRequest(
        output=output,
        format=ExportFormat(form) if form else None,
        wanted=request_from(ConfigurationFilter, filters),
        database=database,
    )
    exported = export_configurations(request)
    progress = TerminalProgress(session)
    progress.note(f"wrote {output}: {many(exported.configurations, 'configuration')}")
    for kind, count in exported.left_out.items():
        progress.note(f"  omitted: {count} ({kind})")


@command.command(short_help="Add other databases to this one.")
@click.argument("others", metavar="OTHER...", nargs=-1, required=True)
@db_option
@common_options
@click.pass_obj
def merge(session: Session, /, *, others: tuple[str, ...], database: str | None) -> None:
    """Add the contents of the databases OTHER (files or URLs) to this one.

    The result is the same in any order, and merging again changes nothing.
    """
    from torchstone.workflows.configs import merge_databases

    for one in merge_databases(others, database, TerminalProgress(session)):
        click.echo(
            f"{one.name}: {many(one.added.new, 'configuration was', 'configurations were')} new, "
            f"{one.added.known} were known"
        )


@command.command(short_help="Check keys, columns, references and foreign hashes.")
@db_option
@json_option
@common_options
@click.pass_obj
def verify(session: Session, /, *, database: str | None, as_json: bool) -> int:
    """Compute every key, column and foreign hash again and compare; nothing is changed.

    The exit code is 1 if one of them differs.
    """
    from collections import Counter

    from torchstone.report.database_text import verify_text
    from torchstone.report.json_document import indented, json_document
    from torchstone.workflows.configs import verify_database

    found = verify_database(database, TerminalProgress(session))
    verified = len(found.hashes) - len(found.unverified)
    if as_json:
        rules = Counter(check.rule for check in found.hashes if check.rule)
        document = {
            "configurations": found.configurations,
            "faults": found.faults,
            "hashes": {"given": len(found.hashes), "verified": verified, "rules": rules},
            "unverified": found.unverified,
        }
        click.echo(indented(json_document(VERIFY_SCHEMA, document)))
    else:
        click.echo(verify_text(found.configurations, found.problems, hashes=len(found.hashes), verified=verified))
    return EXIT_FINDINGS if found.problems else EXIT_FINE


@command.command(short_help="Release unused space.")
@db_option
@common_options
@click.pass_obj
def vacuum(session: Session, /, *, database: str | None) -> None:
    """Release unused space of the database, and renew the statistics that queries are planned with."""
    from torchstone.units import show_bytes
    from torchstone.workflows.configs import vacuum_database

    found = vacuum_database(database, TerminalProgress(session))
    sizes = ""
    if found.before_bytes is not None and found.after_bytes is not None:
        sizes = f": {show_bytes(found.before_bytes)} -> {show_bytes(found.after_bytes)}"
    click.echo(f"{found.name}{sizes}")
