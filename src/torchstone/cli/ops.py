"""torchstone ops: what the database knows about ops."""

import click

from torchstone.cli import ops_coverage, ops_show

_SHOW = "show"


class _ShowByDefault(click.Group):
    """A group that takes `ops NAME` for `ops show NAME`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `show` before what is no subcommand and no call for help."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [_SHOW, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ShowByDefault, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Every way that models call an op, from the database.

    `torchstone ops` (short for `ops show`) lists all ops, `torchstone ops NAME` shows each configuration of one.
    `torchstone ops coverage MODEL --backend B` says how much of a model is covered by tests that pass.
    """


command.add_command(ops_show.command, _SHOW)
command.add_command(ops_coverage.command, "coverage")
