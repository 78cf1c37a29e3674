"""Compare the outputs of a port with golden data, tensor by tensor in order of execution, with likely causes."""

import pickle
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor

from torchstone.errors import InputError, UnreadableFileError
from torchstone.numerics.tolerance import DEFAULT_PCC
from torchstone.record.reference import WRONG, Comparison, Determinism, GoldenTensor, Role, Status, TensorVerdict
from torchstone.reference.golden_files import INPUTS, MODULES, OUTPUTS, Golden, load_golden
from torchstone.reference.judge import judge
from torchstone.reference.structure import tensors_of

# --- Candidates: a file or a Python value -> named tensors; no pickle is executed ---

_DAMAGED = (OSError, ValueError, RuntimeError, LookupError, EOFError, zipfile.BadZipFile,
            safetensors.SafetensorError)  # fmt: skip
_BFLOAT16_IN_NUMPY = np.dtype("V2")  # what numpy writes for bfloat16, which it does not know


def read_candidate(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors, .npz or .pt file by name."""
    read = _READERS.get(path.suffix)
    if read is None:
        msg = f"{path} has an unknown file type for a comparison: {path.suffix!r}; use one of {', '.join(_READERS)}"
        raise InputError(msg)
    if not path.is_file():
        msg = f"cannot read {path}: no such file"
        raise UnreadableFileError(msg)
    try:
        return read(path)
    except _DAMAGED as error:
        lines = str(error).strip().splitlines()
        reason = lines[0][:160] if lines else "it is empty"
        msg = f"{path} cannot be read as {path.suffix} ({reason}); it is damaged or has another format: save it again"
        raise UnreadableFileError(msg) from error


def candidate_tensors(value: object) -> dict[str, Tensor]:
    """Tensors by name from the return value of a port: a tensor, an output object, or a dict of tensors or arrays."""
    converted = _with_tensors(value, OUTPUTS)
    return {name or OUTPUTS: tensor.detach().cpu() for name, tensor in tensors_of(converted, "")}


def _with_tensors(value: object, name: str) -> object:
    """The same value with tensors for its arrays, also inside dicts, lists and tuples."""
    if isinstance(value, np.ndarray):
        return _from_numpy(name, value)
    if isinstance(value, Mapping):
        return {key: _with_tensors(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):  # a named tuple keeps its field names
        return [_with_tensors(one, f"{name}/{place}") for place, one in enumerate(value)]
    return value


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    return dict(load_file(path, device="cpu"))


def _read_npz(path: Path) -> dict[str, Tensor]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: _from_numpy(name, arrays[name]) for name in arrays.files}


def _read_pt(path: Path) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about protocols of pickle that it then refuses
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:  # torch's message explains how to execute the file: do not repeat it
            msg = (
                f"{path} contains more than tensors, and nothing else is read; save with "
                "torch.save({'logits': logits}, ...)"
            )
            raise UnreadableFileError(msg) from error
        except LookupError as error:  # the bytes of another file format, read as pickle
            msg = "torch.save did not write it"
            raise ValueError(msg) from error
    return candidate_tensors(content)


def _from_numpy(name: str, array: np.ndarray) -> Tensor:
    if array.dtype == _BFLOAT16_IN_NUMPY:
        return torch.from_numpy(np.array(array, order="C").view(np.uint16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(np.array(array, order="C"))
    except TypeError as error:
        msg = f"{name} has elements of type {array.dtype}, which torch does not support; save it as float32"
        raise InputError(msg) from error


_READERS: dict[str, Callable[[Path], dict[str, Tensor]]] = {
    ".safetensors": _read_safetensors,
    ".npz": _read_npz,
    ".pt": _read_pt,
    ".pth": _read_pt,
}


# --- Advice: what to look at next, from the verdicts in order of execution ---


def next_step(verdicts: Sequence[TensorVerdict]) -> str:
    """One sentence about the first wrong tensor; "" when none is wrong."""
    place = next((place for place, verdict in enumerate(verdicts) if verdict.status in WRONG), None)
    if place is None:
        return ""
    first, before = verdicts[place], verdicts[:place]
    if first.status is Status.MISSING:
        return f"save it as {first.name}, or accept missing outputs with --allow-missing"
    if first.status is Status.WRONG_SHAPE:
        return f"give {first.name} the golden shape first: its values are compared only then"
    if first.status is Status.WRONG_DTYPE:
        return f"save {first.name} as {first.dtype}, the dtype of the reference"
    match first.role:
        case Role.INPUT:
            return f"the port did not run on the golden inputs: use those of golden_data.safetensors, {INPUTS}/..."
        case Role.MODULE_INPUT:
            return f"the inputs of {first.module} are wrong already: look at the ops {_after(before)}before it"
        case Role.MODULE_OUTPUT:
            return _about_module(first, before)
        case Role.OUTPUT:
            return _about_output(verdicts, before)


def _about_module(first: TensorVerdict, before: Sequence[TensorVerdict]) -> str:
    call = first.name.partition(f"/{OUTPUTS}")[0]
    taken = [verdict for verdict in before if verdict.name.startswith(f"{call}/{INPUTS}")]
    compared = [verdict for verdict in taken if verdict.status is Status.PASSED]
    if not compared or len(compared) < len(taken):
        return f"its inputs were not compared: the error is in {first.module}, or {_after(before)}before it"
    inside = [
        one for one in before if one.role is Role.MODULE_OUTPUT and (one.module or "").startswith(f"{first.module}.")
    ]
    if any(one.status is Status.PASSED for one in inside):
        return f"the inputs of {first.module} and the compared modules inside it are correct: look at its own ops"
    return f"the inputs of {first.module} are correct: the error is in this module"


def _about_output(verdicts: Sequence[TensorVerdict], before: Sequence[TensorVerdict]) -> str:
    modules = [verdict for verdict in verdicts if verdict.role is Role.MODULE_OUTPUT]
    if not modules:
        return "make the reference with --intermediates all and save the module outputs of your port to see where"
    if not any(verdict.status is Status.PASSED for verdict in modules):
        return f"save the module outputs of your port, too, as {MODULES}/PATH/{OUTPUTS}, to see where it goes wrong"
    return f"the compared modules are correct: look at the ops {_after(before)}before the output"


def _after(before: Sequence[TensorVerdict]) -> str:
    """The last module that is known to be correct."""
    right = [one for one in before if one.role is Role.MODULE_OUTPUT and one.status is Status.PASSED]
    return f"after {right[-1].module} and " if right else ""


# --- compare() ---

_NAMED = 5


def compare(
    golden: Golden | Path | str, candidate: object, *, pcc: float = DEFAULT_PCC, allow_missing: bool = False
) -> Comparison:
    """Compare a candidate with golden data.

    `golden` is the result of load_golden, or the folder. `candidate` is a file (.safetensors, .npz, .pt), a tensor, the
    return value of the port, or a dict of tensors by name: the names of the golden data, or unambiguous short ones
    (`logits` for `outputs/logits`, a module's path for its output). A missing output counts as wrong, unless
    `allow_missing` is set: then it is reported, and the other tensors decide.
    """
    if not isinstance(golden, Golden):
        golden = load_golden(Path(golden))
    origin = str(candidate) if isinstance(candidate, str | Path) else "the candidate"
    found = read_candidate(Path(candidate)) if isinstance(candidate, str | Path) else candidate_tensors(candidate)
    matched, unknown = _match_names(golden, found)
    if not matched:
        raise InputError(_no_golden_name(golden, found, origin))
    done = compare_named(golden, matched, candidate=origin, pcc=pcc, allow_missing=allow_missing)
    hinted = _with_hints(unknown, golden, found, matched)
    return msgspec.structs.replace(done, unknown=hinted, notes=(*done.notes, *_random_note(golden)))


def compare_named(
    golden: Golden,
    matched: Mapping[str, Tensor],
    *,
    candidate: str,
    pcc: float = DEFAULT_PCC,
    allow_missing: bool = False,
) -> Comparison:
    """Compare tensors that have the names of the golden data."""
    with torch.no_grad():
        verdicts = tuple(
            judge(about, golden.tensors.get(about.name), matched.get(about.name), pcc=pcc)
            for about in golden.data.tensors
        )
    if allow_missing:
        verdicts = tuple(map(_as_not_given, verdicts))
    first = next((verdict for verdict in verdicts if verdict.status in WRONG), None)
    compared = any(verdict.status is Status.PASSED and verdict.role is not Role.INPUT for verdict in verdicts)
    return Comparison(
        model=golden.data.model,
        candidate=candidate,
        golden_created=golden.data.created,
        passed=first is None and compared,
        first_wrong=None if first is None else first.name,
        first_wrong_module=None if first is None else first.module or "",
        next_step=next_step(verdicts),
        verdicts=verdicts,
        notes=_notes(golden, compared=compared or first is not None),
    )


def _as_not_given(verdict: TensorVerdict) -> TensorVerdict:
    if verdict.status is not Status.MISSING:
        return verdict
    return msgspec.structs.replace(verdict, status=Status.NOT_GIVEN)


def _notes(golden: Golden, *, compared: bool) -> tuple[str, ...]:
    notes = [] if compared else ["only inputs were compared, which proves nothing"]
    if golden.data.determinism is Determinism.DIFFERS:
        notes.append(f"the reference itself differs from run to run ({_drifting(golden)}): this proves little")
    return tuple(notes)


def _random_note(golden: Golden) -> tuple[str, ...]:
    if golden.data.determinism is not Determinism.SEEDED:
        return ()
    return (f"the reference draws random numbers ({_drifting(golden)}), which a port cannot reproduce",)


def _drifting(golden: Golden) -> str:
    return ", ".join(drift.name for drift in golden.data.drifts[:_NAMED])


def _match_names(golden: Golden, found: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The candidate's tensors under the names of the golden data, and the names that match none of them."""
    known = {about.name: about for about in golden.data.tensors}
    outputs = [about.name for about in golden.data.tensors if about.role is Role.OUTPUT]
    matched = {name: tensor for name, tensor in found.items() if name in known}
    unknown = []
    for name, tensor in found.items():
        if name in known:
            continue
        full = _full_name(name, known, outputs, alone=len(found) == 1)
        if full is None or full in matched:
            unknown.append(name)
        else:
            matched[full] = tensor
    return matched, tuple(unknown)


def _full_name(name: str, known: Mapping[str, GoldenTensor], outputs: list[str], *, alone: bool) -> str | None:
    """The golden name that a short one stands for; None when it is ambiguous."""
    for full in (f"{OUTPUTS}/{name}", f"{MODULES}/{name}/{OUTPUTS}", f"{MODULES}/{name}", f"{INPUTS}/{name}"):
        if full in known:
            return full
    given_by_module = [full for full in known if full.startswith(f"{MODULES}/{name}/{OUTPUTS}/")]
    if len(given_by_module) == 1:
        return given_by_module[0]
    return outputs[0] if alone and len(outputs) == 1 else None


def _no_golden_name(golden: Golden, found: Mapping[str, Tensor], origin: str) -> str:
    wanted = [about.name for about in golden.data.tensors if about.role is Role.OUTPUT]
    given = ", ".join(_with_hints(list(found)[:_NAMED], golden, found, {})) or "no tensors"
    more = " ..." if len(wanted) > _NAMED else ""
    return f"{origin} has no golden tensor name: it has {given}; name them {', '.join(wanted[:_NAMED])}{more}"


def _with_hints(
    names: Sequence[str], golden: Golden, found: Mapping[str, Tensor], matched: Mapping[str, Tensor]
) -> tuple[str, ...]:
    """The names; beside each the unmatched output of the same shape, if there is exactly one."""
    wanted = [one for one in golden.data.tensors if one.role is Role.OUTPUT and one.name not in matched]
    hinted = []
    for name in names:
        alike = [one.name for one in wanted if one.shape == tuple(found[name].shape)]
        hinted.append(f"{name} (same shape as {alike[0]})" if len(alike) == 1 else name)
    return tuple(hinted)
