"""What the commands of a sweep share: the folder, and the processes that do the work."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchstone.cli.options import Session
from torchstone.errors import InputError

if TYPE_CHECKING:
    from torchstone.record.task import Environment, Limits
    from torchstone.workers.executor import Executor

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_FOLDER = "sweep"
_NEAR = 3


def folder_option(function: F) -> F:
    """Add --dir."""
    return click.option(
        "--dir",
        "folder",
        type=click.Path(path_type=Path, file_okay=False),
        default=DEFAULT_FOLDER,
        show_default=True,
        help="The folder of this sweep: vectors, runs and reports.",
    )(function)


def executor_options(function: F) -> F:
    """Add --executor and --address."""
    for option in (
        click.option("--address", metavar="ADDRESS", help="The Ray cluster; without it one is started here."),
        click.option(
            "--executor",
            type=click.Choice(["local", "ray"]),
            default="local",
            show_default=True,
            help="Run on this machine, or on a Ray cluster.",
        ),
    ):
        function = option(function)
    return function


@contextmanager
def opened_executor(
    environment: "Environment", *, jobs: int, limits: "Limits", tasks_per_child: int = 1, given: Mapping[str, Any]
) -> "Iterator[Executor]":
    """Processes to work in; all of them are gone when this closes."""
    if given.get("executor") == "ray":
        from torchstone.workers.ray_executor import RayExecutor

        if given.get("address"):
            os.environ["RAY_ADDRESS"] = given["address"]  # where Ray itself looks
        with RayExecutor(environment, jobs, limits, tasks_per_child=tasks_per_child) as cluster:
            yield cluster
        return
    from torchstone.workers.local_pool import LocalPool

    with LocalPool(environment, jobs=jobs, limits=limits, tasks_per_child=tasks_per_child) as pool:
        pool.wait_until_ready()
        yield pool


def unknown_name(what: str, name: str, known: Sequence[str], where: str) -> InputError:
    """The error for a name that is not there, with the nearest ones that are."""
    near = get_close_matches(name, known, n=_NEAR, cutoff=0.4) or [one for one in known if name in one][:_NEAR]
    meant = f"; did you mean {' or '.join(near)}?" if near else f"; {where} has none"
    return InputError(f"there is no {what} {name!r} in {where}{meant if known else '; it is empty'}")


def hint(session: Session, text: str) -> None:
    """Say what to do next, to whoever wants to hear it."""
    if not session.quiet:
        click.echo(text, err=True)
