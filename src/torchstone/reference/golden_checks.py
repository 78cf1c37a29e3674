"""The checks behind the first box: the golden data was read back, run again and found equal."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from torchstone.errors import TorchstoneError
from torchstone.models.inputs import Inputs
from torchstone.models.room import why_no_room
from torchstone.record.checklist import DELIVERABLES, Box, Check
from torchstone.record.golden import Determinism, Role
from torchstone.reference.candidates import read_candidate
from torchstone.reference.golden_files import (
    DATA_FILE,
    TENSORS_FILE,
    TORCH_FILE,
    WEIGHTS_FILE,
    Golden,
    load_golden,
)
from torchstone.reference.replaying import replay
from torchstone.reference.weights import held_state, raw_bytes, weights_of

_SHOWN = 3


def golden_box(folder: Path, model: nn.Module, inputs: Inputs, made: Golden, rebuild: Callable[[], nn.Module]) -> Box:
    """Read the files back and run the model on them again; where no weights are kept, build it again."""
    checks = [
        _reloaded(folder, made),
        _torch_file(folder, made),
        _kept(made),
        _outputs_present(made),
        _same_twice(made),
    ]
    checks.append(_run_again(folder, model, inputs))
    checks.append(_weights(folder, model) if made.data.weights.file else _built_again(model, made, rebuild))
    files = (DATA_FILE, TENSORS_FILE, TORCH_FILE, *((WEIGHTS_FILE,) if made.data.weights.file else ()))
    return Box(name="golden_data", title=DELIVERABLES["golden_data"], files=files, checks=tuple(checks))


def _reloaded(folder: Path, made: Golden) -> Check:
    title = f"{TENSORS_FILE} and {DATA_FILE} read back give the same bits"
    try:
        found = load_golden(folder)
    except TorchstoneError as error:
        return Check(title=title, passed=False, detail=str(error))
    same = [name for name, tensor in made.tensors.items() if _same_bits(tensor, found.tensors[name])]
    return Check(
        title=title,
        passed=len(same) == len(made.tensors) and found.data == made.data,
        detail=f"{len(same)} of {len(made.tensors)} tensors",
    )


def _torch_file(folder: Path, made: Golden) -> Check:
    title = f"{TORCH_FILE} read back with weights_only=True gives the same bits"
    try:
        found = read_candidate(folder / TORCH_FILE)
    except TorchstoneError as error:
        return Check(title=title, passed=False, detail=str(error))
    same = [name for name, tensor in made.tensors.items() if name in found and _same_bits(tensor, found[name])]
    return Check(
        title=title, passed=len(same) == len(made.tensors), detail=f"{len(same)} of {len(made.tensors)} tensors"
    )


def _kept(made: Golden) -> Check:
    lost = [f"{one.name} ({one.reason})" for one in made.data.tensors if one.reason]
    kept = f"{len(made.tensors)} of {len(made.data.tensors)} tensors"
    return Check(
        title="every tensor could be kept",
        passed=not lost,
        detail=f"{kept}{'; not: ' + ', '.join(lost) if lost else ''}",
    )


def _outputs_present(made: Golden) -> Check:
    outputs = made.named(Role.OUTPUT)
    finite = {name: torch.isfinite(_as_float(tensor)) for name, tensor in outputs.items()}
    whole = sum(bool(where.all()) for where in finite.values())
    lost = [name for name, where in finite.items() if where.numel() and not where.any()]
    told = f"; nothing but NaN or Inf: {', '.join(lost[:_SHOWN])}" if lost else ""
    return Check(
        title="the model gives tensors, and none of them is all NaN or Inf",
        passed=bool(outputs) and not lost,
        detail=f"{len(outputs)} outputs, {whole} of them without NaN or Inf{told}",
    )


def _as_float(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor.to(torch.float64)


def _same_twice(made: Golden) -> Check:
    title = "two runs give the same bits"
    match made.data.determinism:
        case Determinism.EQUAL:
            return Check(title=title, passed=True, detail="with two different seeds")
        case Determinism.SEEDED:
            name = made.data.drifts[0].name
            return Check(title=title, passed=True, detail=f"only with the same seed: {name} is drawn at random")
        case Determinism.DIFFERS:
            first = made.data.drifts[0]
            found = f"{len(made.data.drifts)} of the tensors differ, first {first.name} by {first.max_abs}"
            why = "the model keeps something from run to run, or draws numbers that no seed reaches"
            return Check(title=title, passed=False, detail=f"{found}: {why}")


def _run_again(folder: Path, model: nn.Module, inputs: Inputs) -> Check:
    title = "the model run on the inputs from the file gives the golden outputs"
    try:
        found = replay(load_golden(folder), model, inputs).comparison
    except TorchstoneError as error:
        return Check(title=title, passed=False, detail=str(error))
    counts = ", ".join(f"{count} {status}" for status, count in found.counts.items())
    return Check(title=title, passed=found.passed, detail=counts)


def _weights(folder: Path, model: nn.Module) -> Check:
    title = f"{WEIGHTS_FILE} read back gives the same bits"
    try:
        found = read_candidate(folder / WEIGHTS_FILE)
    except TorchstoneError as error:
        return Check(title=title, passed=False, detail=str(error))
    state = held_state(model)
    same = [name for name, tensor in state.items() if name in found and _same_bits(tensor, found[name])]
    return Check(title=title, passed=len(same) == len(state), detail=f"{len(same)} of {len(state)} tensors")


def _built_again(model: nn.Module, made: Golden, rebuild: Callable[[], nn.Module]) -> Check:
    title = "the model built again from its source and seed has the same weights"
    no_room = why_no_room(model)
    if no_room:
        return Check(title=title, passed=False, detail=f"not tried: {no_room}; --with-weights keeps them instead")
    try:
        found = weights_of(rebuild())
    except TorchstoneError as error:
        return Check(title=title, passed=False, detail=str(error))
    if found.sha256 == made.data.weights.sha256:
        return Check(title=title, passed=True, detail=f"{found.tensors} tensors")
    way_out = "keep them with --with-weights, or let the code of the model set a seed of its own"
    return Check(title=title, passed=False, detail=f"the source makes other weights each time; {way_out}")


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    alike = (first.shape, first.dtype) == (second.shape, second.dtype)
    return alike and raw_bytes(first) == raw_bytes(second)
