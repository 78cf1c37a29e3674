"""torchstone sweep: from what models really call to tests that run on every backend."""

import click

from torchstone.cli import sweep_compare, sweep_generate, sweep_report, sweep_repro, sweep_retrace, sweep_run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Tests from traced configurations: generate them, run them on a backend, look at what failed.

    `generate` makes vectors from the database or from a sweep module, `run` runs each in a process of its own, `report`
    shows the results and their history, `compare` finds regressions between two runs, `repro` writes one failure as a
    script, `retrace` checks that a sweep ran what the models ran. All of them work in one folder (--dir).
    """


for name, one in (
    ("generate", sweep_generate),
    ("run", sweep_run),
    ("report", sweep_report),
    ("compare", sweep_compare),
    ("repro", sweep_repro),
    ("retrace", sweep_retrace),
):
    command.add_command(one.command, name)
