"""Compare the set-up of a port with that of the reference, before any number: weights, inputs, mode, dtype, versions.

The port gives what it knows: tensors named `weights/...` and `inputs/...`, and a setup.json beside its tensors. Other
weights or inputs explain wrong values better than any layer does, so they are reported first.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from torchstone.errors import UnreadableFileError
from torchstone.numerics.dtypes import dtype_name
from torchstone.record.files import read_file, shortened
from torchstone.record.reference import WRONG, GoldenTensor, MatchedBy, Role, SetupCheck, TensorVerdict
from torchstone.reference.fused import same_projection, split_to, whole_parts
from torchstone.reference.golden_files import WEIGHTS_FILE, Golden, raw_bytes, read_tensors
from torchstone.reference.layouts import closest_layout
from torchstone.reference.match_values import Matching, match_unnamed
from torchstone.reference.port_files import WEIGHTS, PortTensors
from torchstone.units import many

_SHOWN = 3
_MATRIX = 2  # from here on a tensor may be transposed
_TRAINING_NOTE = "the model is in training mode"
_BLOCK_FLOATS = {"bfloat8_b": 2.0**-6, "bfloat4_b": 2.0**-2}  # their rounding, relative to the largest of a block


class PortSetup(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The document setup.json of a port; everything is optional."""

    dtype: str | None = None
    training: bool | None = None
    seed: int | None = None
    versions: dict[str, str] = {}
    weights: dict[str, str] = {}  # SHA-256 of the bytes of each parameter and buffer
    inputs: dict[str, str] = {}


def read_setup(path: Path | None) -> PortSetup:
    """The set-up that a port states; an empty one where it states none."""
    if path is None:
        return PortSetup()
    try:
        return msgspec.json.decode(read_file(path), type=PortSetup)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        known = ", ".join(PortSetup.__struct_fields__)
        msg = f"{path} cannot be read as the set-up of a port ({shortened(error)}); its keys are {known}"
        raise UnreadableFileError(msg) from error


def compare_setup(golden: Golden, port: PortTensors, verdicts: Sequence[TensorVerdict]) -> tuple[SetupCheck, ...]:
    """What was compared of the set-up, in order of weight; an aspect that the port does not state is unknown."""
    stated = read_setup(port.setup)
    return (
        _weights(golden, port, stated),
        _inputs(golden, stated, verdicts),
        _mode(golden, stated),
        _dtype(golden, stated, verdicts),
        _seed(golden, stated),
        _versions(golden, stated),
    )


def blame(checks: Sequence[SetupCheck]) -> str:
    """What to fix before any layer is looked at; "" when the set-up explains nothing."""
    first = next((one for one in checks if one.same is False and one.decisive), None)
    return "" if first is None else f"{first.detail}: fix that before you look at any layer"


def _unknown(aspect: str, detail: str, *, decisive: bool = False) -> SetupCheck:
    return SetupCheck(aspect=aspect, same=None, detail=detail, decisive=decisive)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


# --- Weights ---


def _weights(golden: Golden, port: PortTensors, stated: PortSetup) -> SetupCheck:
    if not port.weights and not stated.weights:
        return _unknown("weights", "the port does not give its weights", decisive=True)
    own = _golden_weights(golden)
    hashes = golden.data.weights.hashes or {name: _hash(tensor) for name, tensor in own.items()}
    if not hashes:
        reason = "the reference was made without hashes of its weights; make it again"
        return _unknown("weights", reason, decisive=True)
    given = {name: hashes[name] == digest.lower() for name, digest in stated.weights.items() if name in hashes}
    given |= _given_weights(golden, own, port) if own else _given_by_hash(hashes, port, golden.data.dtypes)
    other = sorted(name for name, same in given.items() if not same)
    if not given:
        reason = "no weight of the port has the name, the shape and the element type of one of the reference"
        return _unknown(
            "weights", f"{reason}{'' if own else '; make the reference with --with-weights'}", decisive=True
        )
    lost = len(hashes) - len(given)
    rest = f"; {lost} were not compared" if lost else ""
    if other:
        what = f"the port has other weights for {len(other)} tensor{'s' * (len(other) > 1)}: {_listed(other)}"
        return SetupCheck(aspect="weights", same=False, detail=f"{what}{rest}", names=tuple(other), decisive=True)
    same = f"{len(given)} of {many(len(hashes), 'tensor has', 'tensors have')} the values of the reference{rest}"
    return SetupCheck(aspect="weights", same=True, detail=same, decisive=True)


def _hash(tensor: Tensor) -> str:
    return sha256(raw_bytes(tensor)).hexdigest()


def _golden_weights(golden: Golden) -> Mapping[str, Tensor]:
    """The weights of the reference, where it was made with them."""
    folder = golden.folder
    if folder is None or not golden.data.weights.file or not (folder / WEIGHTS_FILE).is_file():
        return {}
    return read_tensors(folder / WEIGHTS_FILE)


def _given_by_hash(hashes: Mapping[str, str], port: PortTensors, dtypes: Sequence[str]) -> dict[str, bool]:
    """Without the values only an equal hash is certain: in another element type or layout the bytes differ anyway."""
    found = {name: hashes[name] == _hash(one) for name, one in port.weights.items() if name in hashes}
    comparable = {name for name, one in port.weights.items() if dtype_name(one.dtype) in dtypes and one.dim() < _MATRIX}
    return {name: same for name, same in found.items() if same or name in comparable}


def _given_weights(golden: Golden, own: Mapping[str, Tensor], port: PortTensors) -> dict[str, bool]:
    """Whether each weight that the port gives has the golden values, in the layout and the precision of the port."""
    names = _weight_names(own, port.weights)
    given: dict[str, bool] = {}
    used = set(names.values())
    for key, parts in whole_parts([name for name in own if name not in names]).items():
        for name, tensor in port.weights.items():
            refit = split_to({part: own[part] for part in parts}, tensor) if same_projection(name, key) else None
            if refit is not None:
                kept_as = port.kept_as.get(f"{WEIGHTS}/{name}")
                given |= {part: _same_values(own[part], one, kept_as) for part, one in refit.tensors.items()}
                used.add(name)
                break
    left = {name: one for name, one in port.weights.items() if name not in used}
    wanted = {name: one for name, one in own.items() if name not in names and name not in given}
    names |= _weights_by_value(golden, wanted, left) if left and wanted else {}
    return given | {
        name: _same_values(own[name], port.weights[theirs], port.kept_as.get(f"{WEIGHTS}/{theirs}"))
        for name, theirs in names.items()
    }


def _weight_names(own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Weight of the reference -> name in the port: the same one, or the only one that ends so."""
    found = {name: name for name in weights if name in own}
    ends = {f"_{_plain(name)}": name for name in own if name not in found}
    claims: dict[str, list[str]] = {}
    for theirs in weights:
        text = f"_{_plain(theirs)}"
        longest = max((end for end in ends if text.endswith(end)), key=len, default=None)
        if theirs not in found and longest is not None:
            claims.setdefault(ends[longest], []).append(theirs)
    return found | {name: some[0] for name, some in claims.items() if len(some) == 1}


def _weights_by_value(golden: Golden, wanted: Mapping[str, Tensor], left: Mapping[str, Tensor]) -> dict[str, str]:
    """Weights that values or the pattern of names show; order shows nothing, and a wrong guess would blame them."""
    about = tuple(
        GoldenTensor(name=name, role=Role.OUTPUT, shape=tuple(one.shape), dtype=dtype_name(one.dtype))
        for name, one in wanted.items()
    )
    matching = Matching(Golden(data=msgspec.structs.replace(golden.data, tensors=about), tensors=dict(wanted)), left)
    match_unnamed(matching)
    return {name: match.port for name, match in matching.found.items() if match.by is not MatchedBy.ORDER}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def _same_values(golden: Tensor, port: Tensor, kept_as: str | None) -> bool:
    """Equal up to the layout and the rounding of the port's element type."""
    if golden.shape == port.shape and golden.dtype == port.dtype and torch.equal(golden, port):
        return True
    if not golden.numel():
        return golden.numel() == port.numel()
    found = closest_layout(golden, port)
    if found is None:
        return False
    wide = golden.double() if not golden.is_complex() else golden
    arranged = found.layout.undo(port).to(wide.dtype)
    apart, length = float((arranged - wide).abs().pow(2).sum()) ** 0.5, float(wide.abs().pow(2).sum()) ** 0.5
    return apart <= _rounding(port, kept_as) * length


def _rounding(port: Tensor, kept_as: str | None) -> float:
    if kept_as in _BLOCK_FLOATS:
        return _BLOCK_FLOATS[kept_as]
    return torch.finfo(port.dtype).eps if port.is_floating_point() or port.is_complex() else 0.0


# --- Inputs, mode, dtype, seed, versions ---


def _inputs(golden: Golden, stated: PortSetup, verdicts: Sequence[TensorVerdict]) -> SetupCheck:
    given = {one.name: one.status not in WRONG for one in verdicts if one.role is Role.INPUT and one.matched_by}
    for name, digest in stated.inputs.items():
        full = name if name in golden.tensors else f"inputs/{name}"
        if full in golden.tensors:
            given[full] = (
                given.get(full, True) and sha256(raw_bytes(golden.tensors[full])).hexdigest() == digest.lower()
            )
    if not given:
        return _unknown("inputs", "the port does not give its inputs", decisive=True)
    other = [name for name, same in given.items() if not same]
    detail = f"the port ran on other inputs: {_listed(other)}" if other else f"{len(given)} have the golden values"
    return SetupCheck(aspect="inputs", same=not other, detail=detail, names=tuple(other), decisive=True)


def _mode(golden: Golden, stated: PortSetup) -> SetupCheck:
    training = any(note.startswith(_TRAINING_NOTE) for note in golden.data.notes)
    names = {True: "training mode", False: "eval mode"}
    if stated.training is None:
        return _unknown("mode", f"the reference ran in {names[training]}; the port does not say", decisive=True)
    same = stated.training == training
    detail = (
        names[training] if same else f"the port ran in {names[stated.training]}, the reference in {names[training]}"
    )
    return SetupCheck(aspect="mode", same=same, detail=detail, decisive=True)


def _dtype(golden: Golden, stated: PortSetup, verdicts: Sequence[TensorVerdict]) -> SetupCheck:
    own = "/".join(golden.data.dtypes) or "no parameters"
    results = [one for one in verdicts if one.matched_by and one.role is not Role.INPUT]
    seen = sorted({one.candidate_dtype for one in results if one.candidate_dtype and one.candidate_dtype != one.dtype})
    port = stated.dtype.removeprefix("torch.").removeprefix("ttnn.") if stated.dtype else "/".join(seen)
    if not port:
        return _unknown("dtype", f"the reference has {own}; the port does not say")
    same = port in golden.data.dtypes
    return SetupCheck(aspect="dtype", same=same, detail=own if same else f"{port} in the port, {own} in the reference")


def _seed(golden: Golden, stated: PortSetup) -> SetupCheck:
    own = golden.data.seed
    if stated.seed is None:
        return _unknown("seed", f"the reference has {own}; the port does not say")
    same = stated.seed == own
    detail = str(own) if same else f"{stated.seed} in the port, {own} in the reference"
    return SetupCheck(aspect="seed", same=same, detail=detail)


def _versions(golden: Golden, stated: PortSetup) -> SetupCheck:
    own = golden.data.versions
    both = [name for name in stated.versions if name in own]
    if not both:
        return _unknown("versions", "the port does not give versions of packages that the reference has")
    other = [f"{name} {stated.versions[name]}, not {own[name]}" for name in both if stated.versions[name] != own[name]]
    detail = "; ".join(other) if other else ", ".join(f"{name} {own[name]}" for name in both)
    return SetupCheck(aspect="versions", same=not other, detail=detail)
