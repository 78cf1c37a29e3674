"""The options that name a model and say how to run it."""

import shlex
import sys
from functools import wraps

import click

from torchstone.cli.options import F, Option, options_as, with_options
from torchstone.models.inputs import CACHES, InputOptions
from torchstone.record.base import Record
from torchstone.workflows.model_source import TRACE_FILE, ModelRequest, saved_trace

__all__ = ["TRACE_FILE", "ModelRequest", "command_line", "model_options", "saved_trace"]

_MODES = ("auto", "meta", "fake", "cpu", "cuda")


class _ModelOptions(Record, frozen=True, kw_only=True):
    """What click parses; a ModelRequest says the same in the words of the workflows."""

    model: str | None
    model_id: str | None
    inputs: str | None
    batch_size: int | None
    seq_len: int | None
    image_size: int | None
    phase: str | None
    cache_len: int | None
    cache: str | None
    cache_size: int | None
    block_size: int | None
    dtype: str | None
    layers: int | None
    seed: int
    pretrained: bool
    revision: str | None
    download: bool
    text: tuple[str, ...]
    image: tuple[str, ...]
    audio: tuple[str, ...]
    mode: str
    no_reuse: bool
    backward: bool
    no_cache: bool


def _seed(_ctx: click.Context, param: click.Parameter, value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        msg = "a seed is a number of 64 bits"
        raise click.BadParameter(msg, param=param)
    return value


def model_options(function: F) -> F:
    """Add MODEL and all that goes with it; the command gets one `request`."""

    @wraps(function)
    def with_request(*args: object, model_given: _ModelOptions, **rest: object) -> object:
        return function(*args, request=_request(model_given), **rest)

    command = options_as(_ModelOptions, "model_given")(with_request)
    return with_options(command, _OPTIONS)  # type: ignore[return-value]  # click passes what the decorators name


_OPTIONS: tuple[Option, ...] = (
    click.argument("model", required=False, metavar="MODEL"),
    click.option("--model-id", metavar="ID", help="Zoo model, such as meta-llama/Llama-2-7b-hf; same as MODEL."),
    click.option("--inputs", metavar="FILE.py::FN", help="Function that returns the example inputs."),
    click.option("--batch-size", type=click.IntRange(min=1), help="Batch size of generated inputs."),
    click.option("--seq-len", type=click.IntRange(min=1), help="Sequence length of generated inputs."),
    click.option("--image-size", type=click.IntRange(min=1), help="Height and width of generated images."),
    click.option(
        "--phase",
        type=click.Choice(["prefill", "decode"]),
        help="Run the whole prompt (prefill), or one token with a KV cache (decode).",
    ),
    click.option("--cache-len", type=click.IntRange(min=1), help="Tokens in the KV cache, with --phase decode."),
    click.option(
        "--cache",
        type=click.Choice(CACHES),
        help="KV cache: it grows (dynamic), has room for --cache-size tokens (static), lies in blocks (paged), has the "
        "keys and values of latent attention (expanded), or has its rows, which are never expanded (absorbed).",
    ),
    click.option("--cache-size", type=click.IntRange(min=1), help="Tokens a static cache has room for."),
    click.option("--block-size", type=click.IntRange(min=1), help="Tokens in a block of a paged cache; 16 by default."),
    click.option("--dtype", metavar="NAME", help="Element type of weights and float inputs, such as bfloat16."),
    click.option("--layers", type=click.IntRange(min=1), help="Limit each layer stack to this number of layers."),
    click.option(
        "--seed",
        type=int,
        default=0,
        show_default=True,
        callback=_seed,
        help="Random seed of generated weights and inputs.",
    ),
    click.option(
        "--pretrained",
        is_flag=True,
        help="Take weights from MODEL's folder or the Hugging Face cache, not random ones.",
    ),
    click.option("--revision", metavar="REV", help="Branch, tag or commit of the model, with --pretrained."),
    click.option("--download", is_flag=True, help="Let --pretrained download a model that is not in the cache."),
    click.option("--text", multiple=True, metavar="TEXT", help="Input for the model's tokenizer; repeat for a batch."),
    click.option("--image", multiple=True, metavar="FILE", help="Image for the model's processor; repeat for a batch."),
    click.option("--audio", multiple=True, metavar="FILE", help="WAV file for the model's processor; may be repeated."),
    click.option(
        "--mode",
        type=click.Choice(_MODES),
        default="auto",
        show_default=True,
        help="Tensors to run on: meta and fake hold no data; auto takes the fastest faithful mode.",
    ),
    click.option("--no-reuse", is_flag=True, help="Run every layer instead of reusing an identical layer's trace."),
    click.option("--backward", is_flag=True, help="Also run and record the backward pass."),
    click.option("--no-cache", is_flag=True, help="Capture the model again, even if an equal capture was made before."),
)


def _request(given: _ModelOptions) -> ModelRequest:
    if (given.model is None) == (given.model_id is None):
        msg = "give one MODEL, as an argument or with --model-id"
        raise click.UsageError(msg)
    return ModelRequest(
        model=given.model if given.model is not None else str(given.model_id),
        inputs=given.inputs,
        options=InputOptions(
            batch_size=given.batch_size,
            seq_len=given.seq_len,
            image_size=given.image_size,
            phase=given.phase,
            cache_len=given.cache_len,
            cache=given.cache,
            cache_size=given.cache_size,
            block_size=given.block_size,
            dtype=given.dtype,
            layers=given.layers,
            seed=given.seed,
            pretrained=given.pretrained,
            revision=given.revision,
            download=given.download,
            text=given.text,
            image=given.image,
            audio=given.audio,
        ),
        mode=given.mode,
        reuse=not given.no_reuse,
        backward=given.backward,
        cached=not given.no_cache,
        command=command_line(),
    )


def command_line() -> str:
    """The command as it was typed, for provenance."""
    return shlex.join(["torchstone", *sys.argv[1:]])
