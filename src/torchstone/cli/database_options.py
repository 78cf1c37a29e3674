"""The options that name a database and select configurations in it."""

import shlex
import sys

import click

from torchstone.cli.options import F, with_options
from torchstone.workflows.database import DATABASE_VARIABLE, DEFAULT_DATABASE


def db_option(function: F) -> F:
    """Add --db."""
    option = click.option(
        "--db",
        "database",
        metavar="FILE|URL",
        help="The database: a SQLite file, or postgresql://user@host/name.  "
        f"[default: ${DATABASE_VARIABLE}, or {DEFAULT_DATABASE}]",
    )
    return option(function)


def filter_options(function: F) -> F:
    """Add the options that select configurations: --model, --source, --dtype, --rank."""
    return with_options(
        function,
        (
            click.option("--model", metavar="TEXT", help="Only calls seen in models whose name contains TEXT."),
            click.option(
                "--source", metavar="TEXT", help="Only calls seen in tests, scripts or files whose name contains TEXT."
            ),
            click.option("--dtype", metavar="NAME", help="Only configurations with a tensor of this element type."),
            click.option(
                "--rank",
                type=click.IntRange(min=0),
                metavar="N",
                help="Only configurations with a tensor of N dimensions.",
            ),
        ),
    )


def command_line() -> str:
    """The command that is running, for provenance; the password of a database address is removed."""
    from torchstone.store import without_password

    return shlex.join(["torchstone", *map(without_password, sys.argv[1:])])
