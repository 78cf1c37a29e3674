"""torchstone check compare D1 D2: several backends side by side."""

from pathlib import Path

import click

from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.result_folder import write_result
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

COMPARISON_FILE = "check_comparison.json"


@click.command(short_help="Checks of several backends side by side.")
@click.argument("folders", metavar="D1 D2 ...", nargs=-1, type=click.Path(path_type=Path, file_okay=False))
@click.option("--only-differences", is_flag=True, help="Leave out modules with the same status everywhere.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the comparison and its page to this folder.",
)
@json_option
@common_options
@click.pass_obj
def command(
    session: Session, /, *, folders: tuple[Path, ...], only_differences: bool, directory: Path | None, as_json: bool
) -> int:
    """Put the checks in several folders side by side: the same model on several backends, or before and after a change.

    Exit code 1 when something that works in the first folder fails in another.
    """
    from torchstone.check.comparing import compare_folders
    from torchstone.record.codec import encode
    from torchstone.report.check_comparison_text import comparison_text
    from torchstone.report.text import coloured, plain

    if len(folders) < 2:  # noqa: PLR2004 - a comparison is of two or more
        msg = "give two or more folders that `torchstone check --dir` wrote"
        raise click.UsageError(msg)
    found = compare_folders(folders)
    if as_json:
        click.echo(encode(found))
    else:
        paint = coloured if session.uses_color else plain
        click.echo(comparison_text(found, paint, only_differences=only_differences))
    if directory is not None:
        write_result(directory / COMPARISON_FILE, found, session)
    return EXIT_FINDINGS if found.worse else EXIT_FINE
