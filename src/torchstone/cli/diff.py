"""torchstone diff D1 D2: two folders of results side by side."""

from pathlib import Path

import click

from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import TerminalProgress
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("before", metavar="D1", type=_FOLDER)
@click.argument("after", metavar="D2", type=_FOLDER)
@click.option("--all", "everything", is_flag=True, help="Also show the totals that are the same.")
@click.option("--dir", "folder", type=_FOLDER, help="Write the differences and a page with both sides to this folder.")
@json_option
@common_options
@click.pass_obj
def command(
    session: Session, before: Path, after: Path, *, everything: bool, folder: Path | None, as_json: bool
) -> int:
    """Compare the results in two folders: structure, cost, check, golden data and device memory.

    D1 and D2 are folders that commands wrote with --dir, of one model before and after a change, or of two models. What
    both hold is compared: modules by path, ops by name, costs, statuses on the backend, golden tensors and weights.

    Exit code 0 when nothing differs, 1 when something does.
    """
    from torchstone.record.codec import encode
    from torchstone.report.diff_text import diff_text
    from torchstone.report.text import coloured, plain
    from torchstone.workflows.diff import diff_folders

    found = diff_folders(before, after, folder, TerminalProgress(session))
    if as_json:
        click.echo(encode(found))
    else:
        paint = coloured if session.uses_color else plain
        click.echo(diff_text(found, paint, only_differences=not everything))
    return EXIT_FINDINGS if found.differs else EXIT_FINE
