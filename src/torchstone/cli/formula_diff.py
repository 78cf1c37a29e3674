"""torchstone formula diff: how formulas changed from one database to another."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import Session, common_options, json_option
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

if TYPE_CHECKING:
    from torchstone.formula.database_changes import Change

SCHEMA = "torchstone/formula_diff/1"
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(short_help="How formulas changed between two databases.")
@click.argument("old", type=_FILE, metavar="OLD.json")
@click.argument("new", type=_FILE, metavar="[NEW.json]", required=False)
@json_option
@common_options
@click.pass_obj
def command(_session: Session, /, old: Path, new: Path | None, *, as_json: bool) -> int:
    """Show which formulas differ between two databases, term by term.

    Without NEW.json the formulas at hand are compared: derive with one version of a library, keep the file, derive with
    another, and see what changed. Exit code 1 when a formula differs.
    """
    from torchstone.formula.computing import formulas_at_hand
    from torchstone.formula.database import load_file
    from torchstone.formula.database_changes import changes

    before = load_file(old).modules
    after = load_file(new).modules if new is not None else formulas_at_hand().entries
    found = changes(before, after)
    click.echo(_document(found) if as_json else _text(found))
    return EXIT_FINDINGS if any(change.differs for change in found) else EXIT_FINE


def _text(found: "list[Change]") -> str:
    lines = []
    for change in found:
        lines.append(change.title)
        for field, (old, new) in change.fields.items():
            lines += [f"  {field}", *(f"  - {term}" for term in old), *(f"  + {term}" for term in new)]
    differing = sum(change.differs for change in found)
    added = sum(change.kind == "added" for change in found)
    removed = sum(change.kind == "removed" for change in found)
    lines.append(f"{differing} formulas differ, {added} are new, {removed} are gone.")
    return "\n".join(lines)


def _document(found: "list[Change]") -> bytes:
    import msgspec

    rows = [
        {
            "name": change.name,
            "kind": change.kind,
            "versions": change.versions,
            "fields": {field: {"removed": old, "added": new} for field, (old, new) in change.fields.items()},
        }
        for change in found
    ]
    return msgspec.json.encode({"schema": SCHEMA, "changes": rows})
