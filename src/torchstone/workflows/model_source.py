"""A model as a user names it -> the trace behind it: captured now, or read from an earlier run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from inspect import signature
from pathlib import Path
from shlex import quote
from textwrap import shorten
from typing import TYPE_CHECKING

from msgspec.structs import replace as set_fields

from torchstone.errors import InputError, ModelInputsError, UnreadableFileError, require_package
from torchstone.models.inputs import InputOptions, Inputs
from torchstone.record.codec import load as load_record
from torchstone.record.trace import Checkpoint, Trace
from torchstone.workflows.capture_cache import CaptureKey, cached_capture, is_off, keep_capture
from torchstone.workflows.code_files import watched_code
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.shipped_captures import shipped_capture

if TYPE_CHECKING:
    from torch import nn

TRACE_FILE = "trace.json"
_TRACE_HEAD = b'"torchstone/trace/'
_VALUE_MODES = ("auto", "cpu")  # modes that run on real tensors
NO_KEYWORDS: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A model, the inputs it is called with, and how it is captured."""

    model: str  # a model name, FILE.py::FN, a .pt2 file, or a trace.json or folder of an earlier run
    inputs: str | None = None  # FILE.py::FN; None: generated from the model
    options: InputOptions = field(default_factory=InputOptions)
    mode: str = "auto"  # the tensors of the capture: auto, fake, meta, cpu or cuda
    reuse: bool = True  # capture identical layers once
    backward: bool = False  # record a backward pass, too
    command: str = ""  # the command line, for provenance
    cached: bool = True  # whether an equal capture that was made before may answer
    lines: bool = False  # whether the lines of code are needed, which captures that come with torchstone do not have


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAtHand:
    """A model that was captured, with its inputs: it can be captured again."""

    model: "nn.Module"
    inputs: Inputs
    batch: int = 1  # of generated inputs
    generate: "Callable[[int], tuple[nn.Module, Inputs]] | None" = None  # for another batch; None: they were given


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTrace:
    """A trace, and the model behind it where that is at hand, or can be loaded."""

    trace: Trace
    at_hand: Callable[[], ModelAtHand] | None = None
    why_not: str = ""  # at hand
    is_sample: bool = False  # a capture of one sample, which comes with torchstone


def load_trace(
    request: ModelRequest, progress: Progress = SILENT, *, keywords: Mapping[str, object] = NO_KEYWORDS
) -> Trace:
    """Read the trace in a file or folder, or capture the model; raises as `find_trace` does."""
    return find_trace(request, progress, keywords=keywords).trace


def find_trace(
    request: ModelRequest, progress: Progress = SILENT, *, keywords: Mapping[str, object] = NO_KEYWORDS
) -> FoundTrace:
    """Read the trace in a file or folder, or capture the model, which is then at hand.

    `keywords` are passed to forward() beside the inputs. A forward pass that fails is part of the trace
    (`trace.failure`). Raises ModelInputsError for keywords that forward() does not accept or that come with a saved
    trace, ModelError for a model that cannot be loaded, UnreadableFileError for a damaged file.
    """
    saved = saved_trace(request.model)
    if saved is not None:
        trace = load_record(saved, Trace)
        if fixed := [*keywords, *_given_of_a_run(request), *_other_capture(request, trace)]:
            msg = f"{saved} is a finished run, so {', '.join(fixed)} cannot be changed; give the model itself"
            raise ModelInputsError(msg)
        if request.backward and trace.failure is None and trace.recorded_ops.forward_calls == trace.size.op:
            msg = f"{saved} is a finished run without a backward pass; give the model itself with --backward"
            raise ModelInputsError(msg)
        return FoundTrace(trace=trace, why_not="a saved trace has no model; give the model itself")
    kept = _kept(request, progress, keywords)
    if kept is not None:
        trace = set_fields(kept.trace, provenance=set_fields(kept.trace.provenance, command=request.command))
        return replace(kept, trace=trace)
    key = capture_key(request, keywords)
    if not key.has_code or is_off():
        found = _captured(request, progress, keywords)
        keep_capture(key, found.trace)
        return found
    with watched_code() as seen:
        found = _captured(request, progress, keywords)
    keep_capture(key, found.trace, seen.files())
    return found


def _given_of_a_run(request: ModelRequest) -> list[str]:
    """The options that were given of how a model is built and called; a paged cache is a matter of prices alone."""
    options = request.options
    names = [name for name in options.given_input_options() if name != "cache" or options.needs_own_cache]
    names += [name for name in ("dtype", "layers", "pretrained", *options.given_media()) if getattr(options, name)]
    return [f"--{name.replace('_', '-')}" for name in names] + (["--inputs"] if request.inputs else [])


def _other_capture(request: ModelRequest, trace: Trace) -> list[str]:
    """The options of a capture of another kind than that of a saved trace."""
    other = {
        "--mode": request.mode not in ("auto", trace.provenance.mode),
        "--no-reuse": not request.reuse and trace.provenance.reused_ops > 0,
    }
    return [name for name, differs in other.items() if differs]


def kept_trace(
    request: ModelRequest, progress: Progress = SILENT, *, keywords: Mapping[str, object] = NO_KEYWORDS
) -> Trace | None:
    """The capture of an equal request that was made before, or comes with torchstone; None where there is none."""
    kept = _kept(request, progress, keywords)
    return None if kept is None else kept.trace


def _kept(request: ModelRequest, progress: Progress, keywords: Mapping[str, object]) -> FoundTrace | None:
    if not request.cached:
        return None
    key = capture_key(request, keywords)
    kept = cached_capture(key)
    if kept is not None:
        progress.note(f"captured on {kept.provenance.created}; --no-cache captures again")
        return FoundTrace(trace=kept, at_hand=lambda: _loaded(request, progress, keywords))
    shipped = shipped_capture(key) if not request.lines and not key.has_code else None
    if shipped is not None:
        versions = shipped.provenance.versions
        made_with = ", ".join(f"{name} {versions[name]}" for name in ("torch", "transformers") if name in versions)
        progress.note(f"a capture that comes with torchstone ({made_with}); --no-cache captures again")
        why_not = "it comes with torchstone; --no-cache captures the model here"
        return FoundTrace(trace=shipped, why_not=why_not, is_sample=True)
    return None


def as_arguments(request: ModelRequest) -> str:
    """The model of a request as a command line names it, with the inputs and options that were given."""
    words = [request.model, *(["--inputs", request.inputs] if isinstance(request.inputs, str) else [])]
    for option in fields(request.options):
        value = getattr(request.options, option.name)
        if value == option.default:
            continue
        name = f"--{option.name.replace('_', '-')}"
        values = value if isinstance(value, tuple) else (value,)
        words += [name] if value is True else [word for one in values for word in (name, str(one))]
    return " ".join(map(quote, words))


def capture_key(request: ModelRequest, keywords: Mapping[str, object]) -> CaptureKey:
    """What the capture of a request is found by."""
    how = {"mode": request.mode, "reuse": request.reuse, "backward": request.backward, **keywords}
    return CaptureKey(model=request.model, options=request.options, how=how, inputs=request.inputs)


def name_code(request: ModelRequest, progress: Progress, *more: str) -> None:
    """Name the user's code before it is executed: the first line that a command prints about a model.

    `more` is code that is executed beside the model's: a backend of the user's own. Raises MissingExtraError without
    torch, before anything is named: no model can be loaded then.
    """
    inputs = request.inputs if isinstance(request.inputs, str) else ""
    name_targets(progress, request.model, inputs, *more, needed_for="loading a model")


def name_targets(progress: Progress, *given: str, needed_for: str = "") -> None:
    """Name those of some texts that name code, files above all.

    Raises InputError for a file that does not exist, and MissingExtraError where torch is `needed_for` something and is
    not installed.
    """
    from torchstone.models.user_code import parse_target

    targets = [target for text in given if (target := parse_target(text)) is not None]
    for target in targets:
        target.require_file()  # nothing is executed where the file does not exist
    if needed_for:
        require_package("torch", needed_for=needed_for)
    if targets:
        progress.note(f"executing {', '.join(dict.fromkeys(target.module for target in targets))} ...")


def _loaded(request: ModelRequest, progress: Progress, keywords: Mapping[str, object]) -> ModelAtHand:
    name_code(request, progress)
    with progress.step(f"loading {request.model}"):
        from torchstone.models.load_model import load, require_existing

        require_existing(request.model, request.options)
        from torchstone.models.prepare import check_inputs_match

        device = device_for(request.mode, request.options)
        model, inputs = load(request.model, inputs=request.inputs, options=request.options, device=device)
        if keywords:
            inputs = _with_keywords(model, inputs, keywords)
        check_inputs_match(model, inputs)
    return at_hand_of(request.model, model, inputs, request.options, keywords)


def device_for(mode: str, options: InputOptions) -> str:
    """Where to build a model: it fills its cache, so that a decode step on real tensors needs values from the start."""
    return "cpu" if mode in ("cpu", "cuda") and options.phase == "decode" else "meta"


def built_again(
    source: str, inputs: Inputs, options: InputOptions, *, is_generated: bool
) -> "Callable[[], nn.Module] | None":
    """What builds a model with values; None where a cache was generated beside it, which has no values either."""
    if inputs.phase == "decode" and is_generated:
        return None
    from torchstone.models.load_model import load

    return lambda: load(source, inputs=inputs, options=options, device="cpu").model


def at_hand_of(
    source: "str | nn.Module",
    model: "nn.Module",
    inputs: Inputs,
    options: InputOptions,
    keywords: Mapping[str, object] = NO_KEYWORDS,
) -> ModelAtHand:
    """A loaded model with its inputs; `source` is what it was loaded from."""
    if not inputs.follows_options:
        return ModelAtHand(model=model, inputs=inputs)
    from torchstone.models.load_model import load
    from torchstone.models.user_code import parse_target

    # Code of the user is not executed again for other inputs.
    again = source if isinstance(source, str) and parse_target(source) is None else model

    def generate(batch: int) -> "tuple[nn.Module, Inputs]":
        loaded = load(again, options=replace(options, batch_size=batch))
        return loaded.model, replace(loaded.inputs, kwargs={**loaded.inputs.kwargs, **keywords})

    return ModelAtHand(model=model, inputs=inputs, batch=options.batch_size or 1, generate=generate)


def _captured(request: ModelRequest, progress: Progress, keywords: Mapping[str, object]) -> FoundTrace:
    at_hand = _loaded(request, progress, keywords)
    model, inputs = at_hand.model, at_hand.inputs
    with progress.step("capturing"):
        from torchstone.capture.capture_model import About, capture
        from torchstone.models.load_model import describe_source

        about = About(
            model=describe_source(request.model),
            phase=inputs.phase,
            inputs=inputs.origin,
            command=request.command,
            notes=inputs.notes,
            materialise=built_again(request.model, inputs, request.options, is_generated=request.inputs is None),
        )
        trace = capture(model, inputs, request.mode, reuse=request.reuse, backward=request.backward, about=about)
        stored = _checkpoint(request, model)
        trace = set_fields(trace, configuration=_configuration(request.model, model), checkpoint=stored)
        return FoundTrace(trace=trace, at_hand=lambda: at_hand)


def _configuration(name: str, model: "nn.Module") -> dict[str, int]:
    """The sizes of the configuration that a name stands for; formulas are evaluated at them without transformers."""
    from torchstone.formula.derive.sampling_plans import parameters_of
    from torchstone.models.user_code import parse_target

    config = getattr(model, "config", None)
    named = parse_target(name) is None and type(config).__module__.partition(".")[0] == "transformers"
    return parameters_of(config) if named else {}


def _checkpoint(request: ModelRequest, model: "nn.Module") -> Checkpoint | None:
    """How the weights of a configuration in a file are stored; the catalogue knows it of models of the zoo."""
    from torchstone.models.user_code import parse_target

    is_from_file = parse_target(request.model) is None and Path(request.model).exists()
    config = getattr(model, "config", None)
    if config is None or not (is_from_file or request.options.pretrained):
        return None
    from torchstone.models.checkpoint import find_checkpoint
    from torchstone.models.weight_files import tensor_bytes

    stored = find_checkpoint(model, config)
    folder = Path(request.model)
    return set_fields(stored, file_bytes=tensor_bytes(folder)) if stored.quantization and folder.is_dir() else stored


def _with_keywords(model: "nn.Module", inputs: Inputs, keywords: Mapping[str, object]) -> Inputs:
    accepted = signature(model.forward).parameters
    missing = [name for name in keywords if name not in accepted]
    if missing:
        msg = f"the model's forward() does not accept {missing[0]}; drop the option that needs it"
        raise ModelInputsError(msg)
    return replace(inputs, kwargs={**inputs.kwargs, **keywords})


def require_values(request: ModelRequest, purpose: str) -> None:
    """Raise InputError for a request without real values; `purpose` names what needs them: "a check"."""
    if request.mode not in _VALUE_MODES:
        msg = f"{purpose} needs real values, which --mode {request.mode} does not have; drop --mode"
        raise InputError(msg)
    if request.backward:
        msg = f"{purpose} covers the forward pass only; drop --backward"
        raise InputError(msg)
    if saved_trace(request.model) is not None:
        msg = f"{request.model} is a finished run, which has no values; give the model itself"
        raise InputError(msg)


def saved_trace(name: str) -> Path | None:
    """The trace file that a model name stands for: a folder with a trace.json, or the file itself; None otherwise.

    Only the beginning of a file is read. Raises UnreadableFileError where that is not possible.
    """
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
