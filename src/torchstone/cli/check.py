"""torchstone check: what of a model works on a backend."""

import click

from torchstone.cli import check_compare, check_export_ir, check_run

_RUN = "run"


class _RunByDefault(click.Group):
    """A group that takes `check MODEL` for `check run MODEL`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `run` before what is no subcommand and no call for help."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_RUN, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_RunByDefault, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """What of a model works on a backend, and which op is to blame for what does not.

    `torchstone check MODEL --backend B --dir D` (short for `check run`) runs the model, its modules and their ops on
    the backend, each in a process of its own, and compares with eager. `compare D1 D2` puts the results of several
    backends side by side. `export-ir` writes the IR of one module.
    """


for name, one in ((_RUN, check_run), ("compare", check_compare), ("export-ir", check_export_ir)):
    command.add_command(one.command, name)
