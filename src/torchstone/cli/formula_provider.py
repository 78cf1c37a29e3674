"""Who is asked for formulas: the options that choose a provider, and the provider they stand for."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchstone.errors import UnreadableFileError

if TYPE_CHECKING:
    from torchstone.formula.agent.providers import Provider

F = TypeVar("F", bound=Callable[..., Any])


def provider_options(function: F) -> F:
    """Add --provider and --answers."""
    provider = click.option(
        "--provider",
        type=click.Choice(["claude", "claude-sdk", "replay"]),
        default="claude",
        show_default=True,
        help="Who is asked: the claude command, the claude-agent-sdk package, or recorded answers.",
    )
    answers = click.option(
        "--answers",
        type=click.Path(path_type=Path, file_okay=False),
        help="The folder of recorded answers that replay reads; other providers are recorded there.",
    )
    return provider(answers(function))


def chosen_provider(name: str, answers: Path | None, folder: Path | None) -> "Provider":
    """The provider that was asked for; it may read in a folder."""
    from torchstone.formula.agent.claude_command import ClaudeCommand
    from torchstone.formula.agent.claude_sdk import ClaudeSdk
    from torchstone.formula.agent.providers import Recorded, Replay

    if name == "replay":
        if answers is None or not answers.is_dir():
            msg = "--provider replay needs --answers with a folder of recorded answers"
            raise UnreadableFileError(msg)
        return Replay(answers)
    asked: Provider = ClaudeCommand(folder) if name == "claude" else ClaudeSdk(folder)
    return asked if answers is None else Recorded(asked, answers)
