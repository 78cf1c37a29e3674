"""torchstone memory parse LOG: JSON documents from a log."""

from pathlib import Path

import click

from torchstone.cli.memory_options import folder_options, hint, log_options, read_timeline, warn, write_documents
from torchstone.cli.options import Session, common_options, json_option


@click.command(short_help="JSON documents from a log.")
@click.argument("log", type=click.Path())
@folder_options
@log_options
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, *, log: str, directory: Path | None, name: str, as_json: bool, **how: str) -> None:
    """Read LOG and write NAME_memory.json, NAME_operations.json and NAME_inputs_registry.json.

    The nth operation of one document is the nth of the other. A damaged log gives all that can be read, with a warning;
    a file without runtime lines is an error.
    """
    import msgspec

    from torchstone.memory.documents import show_document
    from torchstone.memory.folder import folder_for
    from torchstone.memory.study import Study
    from torchstone.report.memory_text import head_text

    timeline = read_timeline(session, log, **how)
    folder = folder_for(log, directory=directory, name=name)
    write_documents(session, folder, timeline)
    warn(session, timeline)
    if as_json:
        click.echo(msgspec.json.encode(show_document(Study(timeline)) | {"directory": str(folder.path)}))
    else:
        click.echo(head_text(Study(timeline)))
    hint(session, f"next: torchstone memory report {folder.path}")
