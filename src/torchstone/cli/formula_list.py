"""torchstone formula list: the classes whose formulas are known."""

from typing import TYPE_CHECKING

import click

from torchstone.cli.formula_options import load
from torchstone.cli.options import Session, common_options, json_option
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

if TYPE_CHECKING:
    from torchstone.formula.database import Formulas
    from torchstone.record.formula import FormulaEntry

SCHEMA = "torchstone/formulas/1"


@click.command(short_help="The classes whose formulas are known.")
@click.option("--filter", "text", default="", metavar="TEXT", help="Only classes whose path contains TEXT.")
@click.option(
    "--status",
    type=click.Choice(["validated", "pending", "unchecked", "failed"]),
    help="Only entries that are trusted this far.",
)
@click.option("--check", is_flag=True, help="Also look for mistakes in every entry; exit with 1 if there are any.")
@json_option
@common_options
@click.pass_obj
def command(session: Session, text: str, status: str | None, *, check: bool, as_json: bool) -> int:
    """List the module classes whose formulas are known: those that ship, and your own."""
    import json

    formulas = load(session)
    chosen = [
        (key, entry)
        for key, entry in formulas.entries.items()
        if text.lower() in f"{entry.module_path} {entry.variant} {' '.join(entry.aliases)}".lower()
        and status in (None, entry.validation.status)
    ]
    mistakes = _mistakes(formulas) if check else []
    if as_json:
        rows = [_document(formulas, key, entry) for key, entry in chosen]
        click.echo(json.dumps({"schema": SCHEMA, "formulas": rows, "mistakes": mistakes}, indent=1))
    else:
        click.echo(_table(formulas, chosen))
        if not session.quiet:
            click.echo(f"{len(chosen)} of {len(formulas.entries)} formulas.", err=True)
    for mistake in mistakes:
        click.echo(f"torchstone: {mistake}", err=True)
    return EXIT_FINDINGS if mistakes else EXIT_FINE


def _mistakes(formulas: "Formulas") -> list[str]:
    from torchstone.formula.breakdowns import breakdown_problems
    from torchstone.formula.consistency import problems_of

    return list(problems_of(formulas)) or list(breakdown_problems(formulas))


def _document(formulas: "Formulas", key: str, entry: "FormulaEntry") -> dict[str, object]:
    return {
        "key": key,
        "module_path": entry.module_path,
        "variant": entry.variant,
        "aliases": list(entry.aliases),
        "parameters": list(entry.all_parameters),
        "status": entry.validation.status,
        "points_checked": None if entry.evidence is None else entry.evidence.points_checked,
        "own": key in formulas.own,
    }


def _table(formulas: "Formulas", chosen: "list[tuple[str, FormulaEntry]]") -> str:
    from torchstone.formula.templates import name_of
    from torchstone.report.text import aligned

    rows = [("class", "status", "points", "from", "parameters")]
    rows += [
        (
            name_of(entry),
            entry.validation.status,
            "-" if entry.evidence is None else str(entry.evidence.points_checked),
            "own" if key in formulas.own else "shipped",
            ", ".join(entry.flop_analysis.parameters),
        )
        for key, entry in chosen
    ]
    return aligned(rows, right=(2,))
