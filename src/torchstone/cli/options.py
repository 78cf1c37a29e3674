"""Options that every command takes, and what they set up."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from torchstone.numerics.profiles import PROFILES

F = TypeVar("F", bound=Callable[..., object])
R = TypeVar("R")


class Option(Protocol):
    """A decorator that adds one option or argument, as click makes it."""

    def __call__(self, function: F, /) -> F:
        """The same function, with the option."""
        ...


@dataclass(slots=True)
class Session:
    """How this run of torchstone talks to its user."""

    quiet: bool = False
    color: bool | None = None  # None: decided by the terminal, NO_COLOR and FORCE_COLOR
    debug: bool = False

    @property
    def uses_color(self) -> bool:
        """Whether the result may carry colour codes."""
        if self.color is not None:
            return self.color
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            return False
        return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def _set(name: str, value: object) -> Callable[[click.Context, click.Parameter, object], None]:
    def remember(ctx: click.Context, _param: click.Parameter, given: object) -> None:
        if given:
            setattr(ctx.find_root().obj, name, value)

    return remember


def common_options(function: F) -> F:
    """Add --quiet, --no-color and --debug."""
    return with_options(function, (
        click.option("-q", "--quiet", is_flag=True, expose_value=False, callback=_set("quiet", value=True),
                     help="No progress and no hints."),
        click.option("--no-color", is_flag=True, expose_value=False, callback=_set("color", value=False),
                     help="Never use colour (NO_COLOR works too)."),
        click.option("--debug", is_flag=True, expose_value=False, callback=_set("debug", value=True),
                     help="Show the traceback of an error."),
    ))  # fmt: skip


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
profile_option = click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    default="default",
    show_default=True,
    help="What a correct implementation may do: eager's own kernels (exact), other libraries in the same dtype "
    "(default), bfloat16 and block floats on Tenstorrent devices (tt, tt-bfloat8_b, tt-bfloat4_b).",
)


def with_options(function: F, options: Sequence[Option]) -> F:
    """Add several options, which `--help` lists in this order."""
    for option in reversed(options):
        function = option(function)
    return function


def request_from(record: Callable[..., R], options: Mapping[str, object]) -> R:
    """A request from the options of the same names; click has converted each to the type of its field."""
    return record(**options)


def options_as(record: type, name: str = "options") -> Callable[[F], F]:
    """Hand a command its options as one typed record, by the names of the record's fields.

    Stands below the options in the source, that is, it is applied first.
    """
    # A record of either kind, with the fields of those it extends.
    own = (vars(one).get("__annotations__", ()) for one in reversed(record.__mro__))
    names = tuple(dict.fromkeys(chain.from_iterable(own)))

    def apply(function: F) -> F:
        @wraps(function)
        def gather(*args: object, **given: object) -> object:
            values = {one: given.pop(one) for one in names}
            return function(*args, **{name: record(**values)}, **given)

        return gather  # type: ignore[return-value]  # click reads its parameters from the decorators, not from here

    return apply


class DefaultCommandGroup(click.Group):
    """A group with a default command: `check MODEL` stands for `check run MODEL`.

    Without arguments the group shows its help, or runs the default command where `runs_alone` is set.
    """

    def __init__(self, *args: Any, default: str, runs_alone: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.default = default
        self._runs_alone = runs_alone

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command before arguments that start with neither a subcommand nor --help."""
        first = args[0] if args else None
        if first is None and self._runs_alone:
            args = [self.default]
        elif first is not None and first not in (*self.commands, *ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


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
