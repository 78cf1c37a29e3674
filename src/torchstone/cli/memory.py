"""torchstone memory: from a runtime log to an answer."""

import click

from torchstone.cli import (
    memory_compare,
    memory_last_run,
    memory_parse,
    memory_report,
    memory_run,
    memory_show,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Where device memory goes: which op, how much, why, and what to do.

    Reads logs of Tenstorrent's runtime. `run` makes one from a script, `show` answers on the terminal, `parse` and
    `report` write JSON and an HTML page, `last-run` cuts a long log down, `compare` puts two runs side by side. LOG is
    a log file, packed with gzip or not; most commands also take a report folder or its name in ~/.ttmem/reports.
    """


for name, one in (
    ("run", memory_run),
    ("show", memory_show),
    ("parse", memory_parse),
    ("report", memory_report),
    ("last-run", memory_last_run),
    ("compare", memory_compare),
):
    command.add_command(one.command, name)
