"""The options that name a model and say how to run it, and the trace they lead to."""

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchstone.cli.options import Session
from torchstone.cli.progress import step
from torchstone.errors import ModelInputsError, UnreadableFileError
from torchstone.record.codec import load as load_record
from torchstone.record.trace import Trace

if TYPE_CHECKING:
    from torchstone.models.inputs import InputOptions, Inputs

F = TypeVar("F", bound=Callable[..., Any])

TRACE_FILE = "trace.json"
_TRACE_HEAD = b'"torchstone/trace/'
_MODES = ("auto", "meta", "fake", "cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A model as the command line names it, and how it should run."""

    model: str
    inputs: str | None
    options: "InputOptions"
    mode: str
    reuse: bool
    backward: bool


def model_options(function: F) -> F:
    """Add MODEL and all that goes with it; the command gets one `request`."""

    @wraps(function)
    def gather(*args: Any, model: str | None, model_id: str | None, **given: Any) -> Any:
        if (model is None) == (model_id is None):
            msg = "give one MODEL, as an argument or with --model-id"
            raise click.UsageError(msg)
        request = _request(str(model or model_id), given)
        return function(*args, request=request, **given)

    command: Any = gather
    for option in reversed(_OPTIONS):
        command = option(command)
    return command  # type: ignore[no-any-return]


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.argument("model", required=False, metavar="MODEL"),
    click.option(
        "--model-id", metavar="ID", help="A model of the zoo, such as meta-llama/Llama-2-7b-hf; same as MODEL."
    ),
    click.option("--inputs", metavar="FILE.py::FN", help="A function that gives the example inputs."),
    click.option("--batch-size", type=click.IntRange(min=1), help="Batch size of inputs that are made up."),
    click.option("--seq-len", type=click.IntRange(min=1), help="Sequence length of inputs that are made up."),
    click.option("--image-size", type=click.IntRange(min=1), help="Height and width of images that are made up."),
    click.option("--phase", type=click.Choice(["prefill", "decode"]), help="Whole prompt, or one token with a cache."),
    click.option("--cache-len", type=click.IntRange(min=0), help="Tokens in the cache for --phase decode."),
    click.option("--dtype", metavar="NAME", help="Element type of weights and float inputs, such as bfloat16."),
    click.option("--layers", type=click.IntRange(min=1), help="Build only so many layers of each stack."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything that is made up."),
    click.option(
        "--mode", type=click.Choice(_MODES), default="auto", show_default=True, help="What the model runs on."
    ),
    click.option("--no-reuse", is_flag=True, help="Run every layer, also those equal to one already traced."),
    click.option("--backward", is_flag=True, help="Run and record the backward pass, too."),
)


def _request(model: str, given: dict[str, Any]) -> ModelRequest:
    from torchstone.models.inputs import InputOptions

    names = ("batch_size", "seq_len", "image_size", "phase", "cache_len", "dtype", "layers", "seed")
    return ModelRequest(
        model=model,
        options=InputOptions(**{name: given.pop(name) for name in names}),
        inputs=given.pop("inputs"),
        mode=given.pop("mode"),
        reuse=not given.pop("no_reuse"),
        backward=given.pop("backward"),
    )


def requested_trace(request: ModelRequest, session: Session, more: Mapping[str, object] | None = None) -> Trace:
    """The trace behind a request: read from a file or folder that holds one, captured otherwise.

    `more` are keyword arguments for forward() beside the inputs; a model that does not take them is refused.
    """
    saved = saved_trace(request.model)
    if saved is not None:
        if more:
            msg = f"{saved} is a finished run, so {', '.join(more)} cannot be changed; give the model itself"
            raise ModelInputsError(msg)
        return load_record(saved, Trace)
    with step(f"loading {request.model}", session):
        from torchstone.models.fit import check_fit
        from torchstone.models.loading import describe_source, load

        model, inputs = load(request.model, inputs=request.inputs, options=request.options)
        if more:
            inputs = _with_keywords(model, inputs, more)
        check_fit(model, inputs)
    with step("running it once", session):
        from torchstone.capture.capturing import About, capture

        about = About(
            model=describe_source(request.model),
            phase=inputs.phase,
            inputs=inputs.origin,
            command=shlex.join(["torchstone", *sys.argv[1:]]),
            notes=inputs.notes,
            materialise=lambda: load(request.model, inputs=inputs, options=request.options, device="cpu").model,
        )
        return capture(model, inputs, request.mode, reuse=request.reuse, backward=request.backward, about=about)


def _with_keywords(model: Any, inputs: "Inputs", more: Mapping[str, object]) -> "Inputs":
    taken = signature(model.forward).parameters
    missing = [name for name in more if name not in taken]
    if missing:
        msg = f"the model's forward() takes no {missing[0]}; leave the option that needs it out"
        raise ModelInputsError(msg)
    return replace(inputs, kwargs={**inputs.kwargs, **more})


def saved_trace(name: str) -> Path | None:
    """The trace file that a name stands for: a folder with a trace.json, or the file itself."""
    path = Path(name)
    try:
        if path.is_dir() and (path / TRACE_FILE).is_file():
            return path / TRACE_FILE
        if path.is_file() and path.suffix == ".json":
            with path.open("rb") as file:
                return path if _TRACE_HEAD in file.read(64) else None
    except OSError as error:
        msg = f"cannot read {shorten(name, 80)}: {error.strerror or error}"
        raise UnreadableFileError(msg) from error
    return None
