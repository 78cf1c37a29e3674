"""Verify golden data: read it back, build the model again, replay the inputs, compare the outputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from torchstone.errors import InputError, ModelError, TorchstoneError
from torchstone.models.inputs import MEDIA, InputOptions, Inputs
from torchstone.models.load_model import Loaded, load
from torchstone.models.prepare import memory_shortage
from torchstone.record import codec
from torchstone.record.reference import (
    CHECKLIST_FILE,
    DELIVERABLES,
    Box,
    Check,
    Checklist,
    Comparison,
    Determinism,
    GoldenData,
    Rebuild,
    Role,
)
from torchstone.reference.compare_port import basis_of, compare_named
from torchstone.reference.golden_files import (
    DATA_FILE,
    INPUTS,
    TENSORS_FILE,
    TORCH_FILE,
    WEIGHTS_FILE,
    Golden,
    changed_files,
    load_golden,
    load_state,
    model_state,
    raw_bytes,
    require_values,
    weights_of,
)
from torchstone.reference.golden_noise import NOISE_FILE, load_noise
from torchstone.reference.make import versions
from torchstone.reference.port_files import read_candidate
from torchstone.reference.run_model import copy_inputs, inputs_by_name, observe, seeded
from torchstone.reference.structure import fill_in
from torchstone.units import many

# --- Replay: run a model on the golden inputs and compare with the golden outputs ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of a replay."""

    comparison: Comparison
    misfits: tuple[str, ...]  # inputs whose shape, dtype or presence differs from the golden run


def replay(
    golden: Golden, model: nn.Module, inputs: Inputs, *, candidate: str = "a second run", pcc: float | None = None
) -> Replay:
    """Copy the inputs, set them to the golden values, run the model, and compare every golden tensor."""
    own = copy_inputs(inputs)
    misfits = fill_in(inputs_by_name(own, model), INPUTS, golden.named(Role.INPUT))
    known = dict(model.named_modules(remove_duplicate=False))
    asked = dict.fromkeys(one.module for one in golden.data.tensors)
    watched = [path for path in asked if path is not None and path in known]
    seen = observe(model, own, seed=golden.data.seed, watched=watched)
    found = compare_named(golden, seen.tensors(), candidate=candidate, basis=basis_of(golden, pcc))
    return Replay(comparison=found, misfits=tuple(misfits))


# --- The checks of the box "golden data": read back, run again, found equal ---


_SHOWN = 3
_RESULTS = (Role.OUTPUT, Role.MODULE_OUTPUT)
_FLOATS = ("float", "bfloat", "complex")


def golden_box(folder: Path, model: nn.Module, inputs: Inputs, made: Golden, rebuild: Callable[[], nn.Module]) -> Box:
    """Read the files back and run the model on them again; where no weights are saved, build it again."""
    checks = [
        _reloaded(folder, made),
        _torch_file(folder, made),
        _every_tensor_saved(made),
        _outputs_present(made),
        _same_twice(made),
        _noise_measured(folder, made),
    ]
    checks.append(_run_again(folder, model, inputs))
    checks.append(_weights(folder, model) if made.data.weights.file else _built_again(model, made, rebuild))
    files = (DATA_FILE, TENSORS_FILE, TORCH_FILE, NOISE_FILE, *((WEIGHTS_FILE,) if made.data.weights.file else ()))
    return Box(name="golden_data", title=DELIVERABLES["golden_data"], files=files, checks=tuple(checks))


def _reloaded(folder: Path, made: Golden) -> Check:
    title = f"{TENSORS_FILE} and {DATA_FILE} read back give the same bits"
    try:
        found = load_golden(folder)
    except TorchstoneError as error:
        return Check(title=title, passed=False, detail=str(error))
    check = _same_tensors(title, made.tensors, found.tensors)
    return msgspec.structs.replace(check, passed=check.passed and found.data == made.data)


def _torch_file(folder: Path, made: Golden) -> Check:
    title = f"{TORCH_FILE} read back with weights_only=True gives the same bits"
    return _read_back(folder / TORCH_FILE, title, made.tensors)


def _read_back(path: Path, title: str, expected: Mapping[str, torch.Tensor]) -> Check:
    try:
        return _same_tensors(title, expected, read_candidate(path))
    except TorchstoneError as error:
        return Check(title=title, passed=False, detail=str(error))


def _same_tensors(title: str, expected: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> Check:
    same = [name for name, tensor in expected.items() if name in found and _same_bits(tensor, found[name])]
    return Check(
        title=title, passed=len(same) == len(expected), detail=f"{len(same)} of {many(len(expected), 'tensor')}"
    )


def _every_tensor_saved(made: Golden) -> Check:
    lost = [f"{one.name} ({one.reason})" for one in made.data.tensors if one.reason]
    saved = f"{len(made.tensors)} of {many(len(made.data.tensors), 'tensor')}"
    return Check(
        title="every tensor was saved",
        passed=not lost,
        detail=f"{saved}{'; not saved: ' + ', '.join(lost) if lost else ''}",
    )


def _outputs_present(made: Golden) -> Check:
    outputs = made.named(Role.OUTPUT)
    finite = {name: torch.isfinite(_as_float(tensor)) for name, tensor in outputs.items()}
    whole = sum(bool(where.all()) for where in finite.values())
    lost = [name for name, where in finite.items() if where.numel() and not where.any()]
    all_lost = f"; only NaN or Inf: {', '.join(lost[:_SHOWN])}" if lost else ""
    return Check(
        title="the model returns tensors, and none of them is all NaN or Inf",
        passed=bool(outputs) and not lost,
        detail=f"{many(len(outputs), 'output')}, {whole} of them without NaN or Inf{all_lost}",
    )


def _as_float(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor.to(torch.float64)


def _same_twice(made: Golden) -> Check:
    title = "two runs return the same bits"
    match made.data.determinism:
        case Determinism.EQUAL:
            return Check(title=title, passed=True, detail="with two different seeds")
        case Determinism.SEEDED:
            name = made.data.drifts[0].name
            return Check(title=title, passed=True, detail=f"only with the same seed: {name} is drawn at random")
        case Determinism.DIFFERS:
            first = made.data.drifts[0]
            found = f"{len(made.data.drifts)} of the tensors differ, first {first.name} by {first.max_abs}"
            why = "the model keeps state between runs, or draws random numbers that no seed controls"
            return Check(title=title, passed=False, detail=f"{found}: {why}")


def _noise_measured(folder: Path, made: Golden) -> Check:
    title = "the noise of a correct port was measured for every float tensor"
    try:
        noise = load_noise(folder, made.tensors)
    except TorchstoneError as error:
        return Check(title=title, passed=False, detail=str(error))
    floats = [one.name for one in made.data.tensors if one.role in _RESULTS and one.dtype.startswith(_FLOATS)]
    wanted = [name for name in floats if name in made.tensors]
    found = [name for name in wanted if noise is not None and any(name in floors for floors in noise.floors.values())]
    formats = ", ".join(noise.floors) if noise is not None else "no format"
    detail = f"{len(found)} of {many(len(wanted), 'tensor')}, in {formats}"
    return Check(title=title, passed=len(found) == len(wanted), detail=detail)


def _run_again(folder: Path, model: nn.Module, inputs: Inputs) -> Check:
    title = "the model run on the inputs from the file returns the golden outputs"
    try:
        found = replay(load_golden(folder), model, inputs).comparison
    except TorchstoneError as error:
        return Check(title=title, passed=False, detail=str(error))
    counts = ", ".join(f"{count} {status}" for status, count in found.counts.items())
    return Check(title=title, passed=found.passed, detail=counts)


def _weights(folder: Path, model: nn.Module) -> Check:
    return _read_back(folder / WEIGHTS_FILE, f"{WEIGHTS_FILE} read back gives the same bits", model_state(model))


def _built_again(model: nn.Module, made: Golden, rebuild: Callable[[], nn.Module]) -> Check:
    title = "the model built again from its source and seed has the same weights"
    shortage = memory_shortage(model)
    if shortage:
        return Check(title=title, passed=False, detail=f"not tried: {shortage}; use --with-weights to save them")
    try:
        found = weights_of(rebuild())
    except TorchstoneError as error:
        return Check(title=title, passed=False, detail=str(error))
    if found.sha256 == made.data.weights.sha256:
        return Check(title=title, passed=True, detail=many(found.tensors, "tensor"))
    way_out = "save them with --with-weights, or set a seed in the model's code"
    return Check(title=title, passed=False, detail=f"the source builds different weights each time; {way_out}")


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    alike = (first.shape, first.dtype) == (second.shape, second.dtype)
    return alike and raw_bytes(first) == raw_bytes(second)


# --- verify() ---


_SHOWN_CHANGES = 3
_DECIDE_BITS = ("torch", "transformers")


def verify(
    folder: Path, *, model: str | None = None, inputs: str | None = None, pcc: float | None = None
) -> Comparison:
    """Replay golden data on a rebuilt model; `model` and `inputs` override sources that have moved."""
    golden = load_golden(folder)
    loaded = _rebuild(golden.data, model, inputs)
    require_values(loaded.model)
    weights = golden.data.weights
    if weights.file:
        load_state(loaded.model, folder / weights.file, weights)
    source = model or golden.data.rebuild.model
    done = replay(golden, loaded.model, loaded.inputs, candidate=f"{source}, rebuilt", pcc=pcc)
    found, changed = done.comparison, _changed_files(folder)
    other_weights = _weight_notes(golden.data, loaded.model)
    notes = (*changed, *found.notes, *_misfit_notes(done.misfits), *other_weights, *_version_notes(golden.data))
    return msgspec.structs.replace(
        found,
        passed=found.passed and not changed,
        next_step=_next_step(found, other_weights=bool(other_weights)),
        notes=(*notes, *_bits_note(found)),
    )


def _rebuild(data: GoldenData, model: str | None, inputs: str | None) -> Loaded:
    rebuild = data.rebuild
    source, given = model or rebuild.model, inputs or rebuild.inputs
    if not source:
        msg = f"the reference of {data.model} was made from a module in memory; give its source with --model"
        raise InputError(msg)
    try:
        with seeded(data.seed):
            return load(source, inputs=given, options=_options(rebuild, model, inputs), device="cpu")
    except ModelError as error:
        if model and (inputs or not rebuild.inputs):
            raise
        named = f"{rebuild.model}{f' with inputs from {rebuild.inputs}' if rebuild.inputs else ''}"
        msg = f"{error}; the reference was made from {named}: give the new location with --model or --inputs"
        raise ModelError(msg) from error


def _next_step(found: Comparison, *, other_weights: bool) -> str:
    """What to look at when the reference itself no longer holds: there is no port that could be wrong."""
    if not found.next_step:
        return ""
    if other_weights:
        return "the outputs differ because the weights differ: make the reference again with --with-weights"
    if found.first_wrong_module:
        return found.next_step
    return "the model or its packages changed: make the reference again, with --intermediates all for more detail"


def _changed_files(folder: Path) -> list[str]:
    """Files of the reference that changed since they were checked; golden data alone has no checklist."""
    path = folder / CHECKLIST_FILE
    return changed_files(folder, codec.load(path, Checklist)) if path.is_file() else []


def _options(rebuild: Rebuild, model: str | None, inputs: str | None) -> InputOptions:
    """The options of the golden run, without those about a source that was moved."""
    options: dict[str, Any] = dict(rebuild.options)
    if model:
        options |= {"revision": None}
    if inputs:
        options |= dict.fromkeys(MEDIA, ())
    return InputOptions(**options)


def _misfit_notes(misfits: tuple[str, ...]) -> list[str]:
    return [f"inputs that do not match the golden ones: {', '.join(misfits[:_SHOWN_CHANGES])}"] if misfits else []


def _weight_notes(data: GoldenData, model: nn.Module) -> list[str]:
    if data.weights.file or weights_of(model).sha256 == data.weights.sha256:
        return []
    return ["the weights differ from the golden run, as the source builds others now; --with-weights would save them"]


def _version_notes(data: GoldenData) -> list[str]:
    now = versions()
    notes = [
        f"made with {name} {then}, replayed with {name} {now.get(name, 'unknown')}"
        for name, then in data.versions.items()
        if name in _DECIDE_BITS and now.get(name) != then
    ]
    if data.threads != torch.get_num_threads():
        notes.append(
            f"made with {many(data.threads, 'thread')}, replayed with {torch.get_num_threads()}: last bits may differ"
        )
    return notes


def _bits_note(found: Comparison) -> list[str]:
    measured = [verdict.errors for verdict in found.verdicts if verdict.errors is not None]
    equal = sum(errors.equal for errors in measured)
    return [f"{equal} of {many(len(measured), 'tensor is', 'tensors are')} equal bit for bit"]
