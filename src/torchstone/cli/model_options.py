"""The options that name a model and say how to run it."""

import shlex
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import click

from torchstone.cli.options import Session
from torchstone.cli.progress import TerminalProgress
from torchstone.models.inputs import InputOptions
from torchstone.record.trace import Trace
from torchstone.workflows.model_source import NO_KEYWORDS, TRACE_FILE, ModelRequest, load_trace, saved_trace

__all__ = ["TRACE_FILE", "ModelRequest", "command_line", "model_options", "requested_trace", "saved_trace"]

F = TypeVar("F", bound=Callable[..., Any])

_MODES = ("auto", "meta", "fake", "cpu", "cuda")


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
    names = ("batch_size", "seq_len", "image_size", "phase", "cache_len", "dtype", "layers", "seed")
    return ModelRequest(
        model=model,
        options=InputOptions(**{name: given.pop(name) for name in names}),
        inputs=given.pop("inputs"),
        mode=given.pop("mode"),
        reuse=not given.pop("no_reuse"),
        backward=given.pop("backward"),
        command=command_line(),
    )


def command_line() -> str:
    """The command as it was typed, for provenance."""
    return shlex.join(["torchstone", *sys.argv[1:]])


def requested_trace(request: ModelRequest, session: Session, more: Mapping[str, object] = NO_KEYWORDS) -> Trace:
    """The trace behind a request, with progress in the terminal."""
    return load_trace(request, TerminalProgress(session), keywords=more)
