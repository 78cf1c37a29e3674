"""torchstone reference: step one of a bring-up, and the comparisons that follow."""

import click

from torchstone.cli import reference_compare, reference_make, reference_verify

_MAKE = "make"


class _MakeByDefault(click.Group):
    """A group that takes `reference MODEL` for `reference make MODEL`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `make` before what is no subcommand and no call for help."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_MAKE, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_MakeByDefault, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """What is right: golden data, graph, summary, operators, shapes and parameters of a model, each checked.

    `torchstone reference MODEL --dir D` (short for `reference make`) writes all of it. `verify D` builds the model
    again and replays it. `compare D CANDIDATE` compares what a port gave with the golden data.
    """


for name, one in ((_MAKE, reference_make), ("verify", reference_verify), ("compare", reference_compare)):
    command.add_command(one.command, name)
