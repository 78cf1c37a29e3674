"""compare(): somebody's port against the golden data, tensor by tensor in order of execution."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from torchstone.errors import InputError
from torchstone.numerics.tolerance import DEFAULT_PCC
from torchstone.record.comparison import WRONG, Comparison, Status, TensorVerdict
from torchstone.record.golden import Determinism, GoldenTensor, Role
from torchstone.reference.advising import next_step
from torchstone.reference.candidates import candidate_tensors, read_candidate
from torchstone.reference.golden_files import Golden, load_golden
from torchstone.reference.judging import judge
from torchstone.reference.names import INPUTS, MODULES, OUTPUTS

_NAMED = 5


def compare(
    golden: Golden | Path | str, candidate: Any, *, pcc: float = DEFAULT_PCC, allow_missing: bool = False
) -> Comparison:
    """Compare a candidate with golden data.

    `golden` is what load_golden gives, or the folder. `candidate` is a file (.safetensors, .npz, .pt), a tensor, what
    the port returned, or a dict of tensors by name: the names of the golden data, or shorter ones where they are clear
    (`logits` for `outputs/logits`, a module's path for its output). An output that is missing is wrong, unless
    `allow_missing`: then it is told, and what there is decides.
    """
    if not isinstance(golden, Golden):
        golden = load_golden(Path(golden))
    origin = str(candidate) if isinstance(candidate, str | Path) else "what was given"
    found = read_candidate(Path(candidate)) if isinstance(candidate, str | Path) else candidate_tensors(candidate)
    matched, unknown = _matched(golden, found)
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
        verdicts = tuple(map(_excused, verdicts))
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


def _excused(verdict: TensorVerdict) -> TensorVerdict:
    if verdict.status is not Status.MISSING:
        return verdict
    return msgspec.structs.replace(verdict, status=Status.NOT_GIVEN)


def _notes(golden: Golden, *, compared: bool) -> tuple[str, ...]:
    notes = [] if compared else ["nothing but inputs was compared, and that proves nothing"]
    if golden.data.determinism is Determinism.DIFFERS:
        notes.append(f"the reference itself gives something else in each run ({_drifting(golden)}): this proves little")
    return tuple(notes)


def _random_note(golden: Golden) -> tuple[str, ...]:
    if golden.data.determinism is not Determinism.SEEDED:
        return ()
    return (f"the reference draws random numbers ({_drifting(golden)}), which a port cannot draw again",)


def _drifting(golden: Golden) -> str:
    return ", ".join(drift.name for drift in golden.data.drifts[:_NAMED])


def _matched(golden: Golden, found: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The candidate's tensors under the names of the golden data, and the names that mean nothing here."""
    known = {about.name: about for about in golden.data.tensors}
    outputs = [about.name for about in golden.data.tensors if about.role is Role.OUTPUT]
    matched = {name: tensor for name, tensor in found.items() if name in known}
    unknown = []
    for name, tensor in found.items():
        if name in known:
            continue
        meant = _meant(name, known, outputs, alone=len(found) == 1)
        if meant is None or meant in matched:
            unknown.append(name)
        else:
            matched[meant] = tensor
    return matched, tuple(unknown)


def _meant(name: str, known: Mapping[str, GoldenTensor], outputs: list[str], *, alone: bool) -> str | None:
    """The golden name that a shorter one stands for; None when it is not clear."""
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
    return f"{origin} has none of the golden names: it has {given}; name them {', '.join(wanted[:_NAMED])}{more}"


def _with_hints(
    names: Sequence[str], golden: Golden, found: Mapping[str, Tensor], matched: Mapping[str, Tensor]
) -> tuple[str, ...]:
    """The names, and beside each the one output that is wanted and has its shape."""
    wanted = [one for one in golden.data.tensors if one.role is Role.OUTPUT and one.name not in matched]
    hinted = []
    for name in names:
        alike = [one.name for one in wanted if one.shape == tuple(found[name].shape)]
        hinted.append(f"{name} (of the shape of {alike[0]})" if len(alike) == 1 else name)
    return tuple(hinted)
