"""Golden data: run a model twice, keep its inputs and outputs, and state how reproducible they are."""

import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase

import msgspec
import torch
from torch import nn

from torchstone import __version__
from torchstone.errors import InputError
from torchstone.models.inputs import InputOptions, Inputs, inputs_from_value
from torchstone.models.load_model import describe_source
from torchstone.numerics.compare import identical, measure
from torchstone.numerics.dtypes import dtype_name
from torchstone.record.reference import (
    Determinism,
    Drift,
    GoldenData,
    GoldenTensor,
    Rebuild,
    WeightsKind,
    WeightsSource,
)
from torchstone.record.trace import Trace
from torchstone.record.unique import unique_modules
from torchstone.reference.golden_files import INPUTS, OUTPUTS, Golden, require_values, weights_of, why_not_saved
from torchstone.reference.run_model import Observation, RecordedTensor, observe
from torchstone.reference.structure import structure_of
from torchstone.units import many

# --- Which modules' inputs and outputs are saved ---


UNIQUE = "unique"
ALL = "all"


def chosen_modules(trace: Trace, choice: str) -> tuple[str, ...]:
    """The paths of the called modules that a choice selects: "" (none), unique, all, or a pattern such as layers.*."""
    called = set(trace.call_origins.modules)
    paths = [module.path for number, module in enumerate(trace.modules) if number in called and module.path]
    match choice:
        case "":
            return ()
        case "all":
            return tuple(paths)
        case "unique":
            first = {module.module_path for module in unique_modules(trace).modules}
            return tuple(path for path in paths if path in first)
        case _:
            return _matching(paths, choice)


def _matching(paths: Sequence[str], pattern: str) -> tuple[str, ...]:
    found = tuple(path for path in paths if fnmatchcase(path, pattern))
    if not found:
        near = get_close_matches(pattern, paths, n=1, cutoff=0.3)
        meant = f"; a module that ran is {near[0]}" if near else ""
        msg = (
            f"--intermediates {pattern!r} matches no module that ran{meant}; use unique, all or a pattern such as *.mlp"
        )
        raise InputError(msg)
    return found


# --- make_golden() ---


_DEFAULTS = InputOptions()
_MAX_DRIFTS = 20
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Which intermediates to save, and what the model and its inputs were built from."""

    model: str = ""
    inputs: str | None = None
    options: InputOptions = _DEFAULTS
    intermediates: str = ""  # as the user wrote it
    watched: tuple[str, ...] = ()  # the modules that it selects
    weights: WeightsSource | None = None  # where the weights come from; None: a module in memory


_DEFAULT_REQUEST = Request()


def make_golden(model: nn.Module, inputs: object, request: Request = _DEFAULT_REQUEST) -> Golden:
    """Run a model with the seed, then again to see whether the outputs are reproducible; its weights need values."""
    require_values(model)
    given = inputs_from_value(inputs, origin="the given inputs")
    seed = request.options.seed
    first = observe(model, given, seed=seed, watched=request.watched)
    determinism, drifts = _run_again(model, given, request, first)
    about = [_about(one) for one in first.seen]
    ran = {one.module for one in first.seen}
    source = request.weights or WeightsSource(kind=WeightsKind.MEMORY)
    data = GoldenData(
        banner=source.banner,
        model=request.model or describe_source(model),
        rebuild=Rebuild(model=request.model, inputs=request.inputs, options=asdict(request.options)),
        seed=seed,
        dtypes=tuple(sorted({dtype_name(tensor.dtype) for tensor in model.parameters()})),
        versions=versions(),
        threads=torch.get_num_threads(),
        created=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        inputs=structure_of(first.inputs, INPUTS),
        outputs=structure_of(first.outputs, OUTPUTS),
        tensors=tuple(about),
        intermediates=request.intermediates,
        not_called=tuple(path for path in request.watched if path not in ran),
        determinism=determinism,
        drifts=drifts,
        weights=msgspec.structs.replace(weights_of(model), source=source),
        inputs_origin=given.origin,
        notes=(*given.notes, *_state_notes(model, first)),
    )
    saved = {one.name for one in about if not one.reason}
    tensors = {name: tensor.contiguous() for name, tensor in first.tensors().items() if name in saved}
    return Golden(data=data, tensors=tensors)


def _state_notes(model: nn.Module, ran: Observation) -> list[str]:
    """Notes on state that a run changes, and on modes in which a port would not run."""
    notes = []
    if model.training:
        notes.append("the model is in training mode, and so is the golden data; call eval() on it for inference")
    if ran.changed_buffers:
        more = " ..." if len(ran.changed_buffers) > _SHOWN else ""
        names = f"{', '.join(ran.changed_buffers[:_SHOWN])}{more}"
        notes.append(
            f"a run changes {many(len(ran.changed_buffers), 'buffer')} ({names}); each run started with them as built"
        )
    return notes


def _run_again(
    model: nn.Module, inputs: Inputs, request: Request, first: Observation
) -> tuple[Determinism, tuple[Drift, ...]]:
    """Run with another seed; only if the bits differ, run with the same seed: most models need one more run."""
    seed = request.options.seed
    other = drifts_between(first.seen, observe(model, inputs, seed=seed + 1, watched=request.watched).seen)
    if not other:
        return Determinism.EQUAL, ()
    same = drifts_between(first.seen, observe(model, inputs, seed=seed, watched=request.watched).seen)
    return (Determinism.DIFFERS, same) if same else (Determinism.SEEDED, other)


def drifts_between(first: Sequence[RecordedTensor], second: Sequence[RecordedTensor]) -> tuple[Drift, ...]:
    """The tensors that are not bit for bit the same, in order of execution."""
    again = {one.name: one.tensor for one in second}
    found: list[Drift] = []
    for one in first:
        other = again.pop(one.name, None)
        if other is None or other.shape != one.tensor.shape:
            found.append(Drift(name=one.name, max_abs=None, first_seen=one.module or ""))
            continue
        if not why_not_saved(one.tensor) and not identical(one.tensor, other):
            errors = measure(one.tensor, other, rtol=0, atol=0)
            found.append(Drift(name=one.name, max_abs=errors.max_abs, first_seen=one.module or ""))
    found.extend(Drift(name=name, max_abs=None, first_seen="") for name in again)
    return tuple(found[:_MAX_DRIFTS])


def _about(one: RecordedTensor) -> GoldenTensor:
    return GoldenTensor(
        name=one.name,
        role=one.role,
        shape=tuple(one.tensor.shape),
        dtype=dtype_name(one.tensor.dtype),
        module=one.module,
        reason=why_not_saved(one.tensor),
    )


def versions() -> dict[str, str]:
    """The versions of the loaded packages that decide the numbers, by name."""
    found = {"torchstone": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    transformers = getattr(sys.modules.get("transformers"), "__version__", None)
    return found | ({"transformers": str(transformers)} if transformers else {})
