"""torchstone completion: the script with which a shell completes commands and options."""

import click
from click.shell_completion import get_completion_class

from torchstone.cli.options import Session, common_options
from torchstone.errors import EXIT_FINE

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@common_options
@click.pass_context
def command(context: click.Context, /, shell: str) -> int:
    """Print the script that lets SHELL complete commands and options.

    For bash, add this line to ~/.bashrc: eval "$(torchstone completion bash)"; for zsh to ~/.zshrc, with zsh. For fish:
    torchstone completion fish > ~/.config/fish/completions/torchstone.fish
    """
    program = context.find_root()
    kind = get_completion_class(shell)
    if kind is None or not isinstance(context.obj, Session):
        msg = f"click has no completion for {shell}"
        raise RuntimeError(msg)
    name = program.info_name or "torchstone"
    variable = f"_{name}_COMPLETE".replace("-", "_").upper()
    click.echo(kind(program.command, {}, name, variable).source())
    return EXIT_FINE
