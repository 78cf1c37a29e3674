"""torchstone db: the database of configurations."""

import click

from torchstone.cli import db_export, db_import, db_info, db_merge, db_vacuum, db_verify


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """The database of configurations: every way an op was called, kept once, with all places it was seen at.

    `import` reads traces and master files of other tools, `export` writes them, `merge` adds other databases. Adding
    the same again changes nothing, and the order does not matter. `torchstone ops` shows what is in it.
    """


for name, one in (
    ("info", db_info),
    ("import", db_import),
    ("export", db_export),
    ("merge", db_merge),
    ("verify", db_verify),
    ("vacuum", db_vacuum),
):
    command.add_command(one.command, name)
