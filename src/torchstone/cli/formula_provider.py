"""The options that choose a provider of formulas."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def provider_options(function: F) -> F:
    """Add --provider and --answers."""
    provider = click.option(
        "--provider",
        type=click.Choice(["claude", "claude-sdk", "replay"]),
        default="claude",
        show_default=True,
        help="Provider of answers: the claude command, the claude-agent-sdk package, or recorded answers.",
    )
    answers = click.option(
        "--answers",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of recorded answers: replay reads it, other providers write to it.",
    )
    return provider(answers(function))
