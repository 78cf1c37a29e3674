"""torchstone formula approve NAME: a person vouches for a pending entry."""

import click

from torchstone.cli.options import Session, common_options


@click.command(short_help="Vouch for a pending entry, or throw it away.")
@click.argument("name")
@click.option("--by", "person", metavar="NAME", help="Who approves; your user name when left out.")
@click.option("--reject", is_flag=True, help="Take the entry out of your formulas instead.")
@common_options
@click.pass_obj
def command(session: Session, name: str, person: str | None, *, reject: bool) -> None:
    """Approve the pending entry NAME of your own formulas, so that it counts as validated."""
    from torchstone.errors import FormulaError
    from torchstone.formula.approving import approved
    from torchstone.formula.database import Formulas, own_entries, remove_entry, save_entry
    from torchstone.formula.templates import name_of
    from torchstone.record.formula import Status

    entry = Formulas(entries=own_entries().modules).find(name)
    if entry.validation.status is not Status.PENDING:
        msg = f"{name_of(entry)} is {entry.validation.status}, not pending"
        raise FormulaError(msg)
    if reject:
        remove_entry(name)
        click.echo(f"removed {name_of(entry)}")
        return
    vouched = approved(entry, person or _user())
    save_entry(vouched)
    click.echo(f"approved {name_of(entry)}")
    if not session.quiet:
        click.echo(f"status: {vouched.validation.status} by {vouched.validation.validator}", err=True)


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in the system's list, as in some containers
        return "a person"
