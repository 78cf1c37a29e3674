"""torchstone formula generate: the formulas as a Python package."""

from pathlib import Path

import click

from torchstone.cli.formula_options import load
from torchstone.cli.options import Session, common_options


@click.command(short_help="All formulas as a Python package without dependencies.")
@click.option(
    "--out",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the package generated_modules into this folder.",
)
@click.option(
    "--filter", "text", default="", metavar="TEXT", help="Only classes whose path contains TEXT, and what they call."
)
@common_options
@click.pass_obj
def command(session: Session, folder: Path, text: str) -> None:
    """Write the formulas as a Python package that needs nothing but Python.

    `from generated_modules import compute_flops` then gives the same numbers as torchstone. A package that was written
    before is replaced as a whole.
    """
    from torchstone.errors import FormulaError
    from torchstone.formula.generating import generated_files, reachable
    from torchstone.formula.package_folder import refuse_foreign, write_package

    refuse_foreign(folder)
    formulas = load(session)
    chosen = reachable(formulas, text)
    if not chosen.entries:
        msg = f"no class path contains {text!r}; `torchstone formula list` shows what is known"
        raise FormulaError(msg)
    package = write_package(folder, generated_files(chosen))
    click.echo(str(package))
    if not session.quiet:
        click.echo(f"wrote {len(chosen.entries)} classes; use them from {folder} with", err=True)
        click.echo("  from generated_modules import compute_flops", err=True)
