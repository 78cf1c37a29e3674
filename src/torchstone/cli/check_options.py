"""The options of a check, and the settings they lead to."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchstone.errors import InputError

if TYPE_CHECKING:
    from torchstone.check.checking import Subject
    from torchstone.check.settings import Settings
    from torchstone.cli.model_options import ModelRequest

F = TypeVar("F", bound=Callable[..., Any])

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[KMGT]i?B?|B)?", re.IGNORECASE)
_POWERS = {"B": 0, "K": 1, "M": 2, "G": 3, "T": 4}

backend_options: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--backend", required=True, metavar="NAME", help="What to run on; `torchstone backends` lists what there is."
    ),
    click.option(
        "--python",
        "interpreter",
        metavar="PATH",
        help="The Python of another environment in which the backend lives; it needs torch, not torchstone.",
    ),
    click.option(
        "--backend-option",
        "pairs",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of the backend; values are JSON or text.",
    ),
    click.option("--timeout", "deadline_s", type=click.FloatRange(min=0.1), default=120.0, show_default=True,
                 metavar="SECONDS", help="How long one module or op may take."),
    click.option("--memory-limit", metavar="SIZE", help="How much memory one may take, such as 4GiB."),
)  # fmt: skip

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    *backend_options,
    click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="How many run at once."),
    click.option("--pcc", multiple=True, metavar="[NAME=]NUMBER",
                 help="The least correlation with eager; for an element type (bfloat16=0.98) or a pattern of paths, "
                 "classes or ops (layers.*=0.95), too. 0.99 when left out."),
    click.option("--tolerances", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.toml",
                 help="Tolerances in a file: pcc, relative_l2, rtol, atol, by [dtype.NAME] and [pattern.NAME]."),
    click.option("--granularity", type=click.Choice(["op", "module"]), default="op", show_default=True,
                 help="Go down to the op to blame, or stop at modules."),
    click.option("--only", default="", metavar="PATTERN", help="Begin at the modules whose path or class matches."),
    click.option("--max-depth", type=click.IntRange(min=0), metavar="N", help="Walk no deeper than this."),
    click.option("--root-only", is_flag=True, help="Run the whole model and nothing else."),
    click.option("--no-ir", is_flag=True, help="Export no IR: quicker where the backend compiles slowly."),
    click.option("--resume", is_flag=True, help="Go on where an interrupted run with this --dir ended."),
    click.option("--reuse", "reuse_results", is_flag=True,
                 help="Take over and keep results of equal modules and ops of other models, in the user's cache."),
)  # fmt: skip


def check_options(function: F) -> F:
    """Add everything that says how a check goes about it."""
    command: Any = function
    for option in reversed(_OPTIONS):
        command = option(command)
    return command  # type: ignore[no-any-return]


def settings_of(given: dict[str, Any]) -> "Settings":
    """The settings that options mean."""
    from torchstone.backends.registry import read_options
    from torchstone.check.settings import Granularity, Settings, shared_results
    from torchstone.check.tolerances import read_tolerances
    from torchstone.record.task import Limits

    root_only = given.get("root_only", False)
    return Settings(
        backend=given["backend"],
        options=read_options(given["pairs"]),
        python=given["interpreter"],
        jobs=given.get("jobs", 1),
        limits=Limits(deadline_s=given["deadline_s"], memory_bytes=read_size(given["memory_limit"])),
        tolerances=read_tolerances(given.get("pcc", ()), given.get("tolerances")),
        granularity=Granularity.MODULE if root_only else Granularity(given.get("granularity", "op")),
        only=given.get("only", ""),
        max_depth=0 if root_only else given.get("max_depth"),
        exports_ir=not given.get("no_ir", False),
        reuse=str(shared_results()) if given.get("reuse_results") else "",
    )


def subject_of(request: "ModelRequest", command: str) -> "Subject":
    """The model of a request; options that a check has no use for are refused."""
    from torchstone.check.checking import Subject
    from torchstone.cli.model_options import saved_trace

    if request.mode not in ("auto", "cpu"):
        msg = f"--mode {request.mode} has no values to compare: a check really runs the model; leave --mode out"
        raise InputError(msg)
    if request.backward:
        msg = "a check runs the forward pass only; leave --backward out"
        raise InputError(msg)
    if saved_trace(request.model) is not None:
        msg = f"{request.model} is a finished run without values; give the model itself"
        raise InputError(msg)
    return Subject(model=request.model, inputs=request.inputs, options=request.options, command=command)


def read_size(text: str | None) -> int | None:
    """A number of bytes: 4GiB, 512M, 1000000."""
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None or float(found["number"]) == 0:
        msg = f"--memory-limit {text!r} is no size; write one such as 4GiB or 512MiB"
        raise InputError(msg)
    unit = (found["unit"] or "B")[0].upper()
    return int(float(found["number"]) * 1024 ** _POWERS[unit])
