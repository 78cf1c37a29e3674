"""Compare the outputs of a port with golden data, tensor by tensor in order of execution, with likely causes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from torchstone.errors import InputError
from torchstone.numerics.number_formats import is_format
from torchstone.record.reference import (
    WRONG,
    Comparison,
    Determinism,
    GoldenTensor,
    Role,
    Status,
    TensorVerdict,
)
from torchstone.reference.golden_files import Golden, load_golden, raw_bytes
from torchstone.reference.golden_noise import load_noise
from torchstone.reference.judge import Basis, judge
from torchstone.reference.layouts import Shape, layouts_to_try, nan_in_padding, possible_layouts
from torchstone.reference.match_names import NameMap, as_name_map, match_names, read_map
from torchstone.reference.match_values import Match, Matching
from torchstone.reference.next_step import next_step
from torchstone.reference.port_files import PortTensors, read_port
from torchstone.reference.setup_differences import blame, compare_setup
from torchstone.reference.spread import layer_errors, spread_words
from torchstone.units import many

_NAMED = 5
_FEWEST = 3  # tensors that show a convention of the port
_MOST = 0.8  # the share of them that must agree
_RESULTS = (Role.OUTPUT, Role.MODULE_OUTPUT)
_LOST = frozenset({Status.MISSING, Status.NOT_GIVEN})
_NOT_COMPARED = _LOST | {Status.NOT_KEPT}


_Use = tuple[Shape, Shape | None, tuple[str, ...]]  # golden shape, shape in the port, layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a port is compared."""

    basis: Basis = field(default_factory=Basis)
    partial: bool = False  # accept a port that lacks outputs, or most intermediates
    names: NameMap | None = None  # port name -> golden name


def compare(  # noqa: PLR0913 - the public signature
    golden: Golden | Path | str,
    candidate: object,
    *,
    pcc: float | None = None,
    profile: str = "default",
    partial: bool = False,
    names: Path | Mapping[str, object] | None = None,
    allow_missing: bool = False,
) -> Comparison:
    """Compare a candidate with golden data.

    `golden` is the result of load_golden, or the folder. `candidate` is a file (.safetensors, .npz, .npy, .pt,
    .tensorbin), a folder of such files, a tensor, the return value of the port, or a dict of tensors by name. Tensors
    are matched by name (unambiguous short ones work: `logits` for `outputs/logits`, a module's path for its output),
    then by `names` (a file or a mapping: port name -> golden name), then by value and order.

    A missing output counts as wrong, and a comparison that lacks most outputs of modules does not pass, unless
    `partial` is set: then the tensors that were given decide. `allow_missing` is the old name of `partial`.
    """
    if not isinstance(golden, Golden):
        golden = load_golden(Path(golden))
    rules = Rules(basis=basis_of(golden, pcc, profile), partial=partial or allow_missing, names=_name_map(names))
    port = read_port(candidate)
    matching = match_names(golden, port.tensors, rules.names)
    if not matching.found:
        raise InputError(_no_golden_name(golden, port, matching))
    return _compared(golden, port, matching, rules)


def basis_of(golden: Golden, pcc: float | None, profile: str = "default") -> Basis:
    """What golden data is judged by: the noise that is stored with it, and the PCC that the user asks for."""
    noise = None if golden.folder is None else load_noise(golden.folder, golden.tensors, profile)
    return Basis(noise=noise, pcc=pcc)


def _name_map(names: Path | Mapping[str, object] | None) -> NameMap | None:
    if names is None:
        return None
    return as_name_map(names) if isinstance(names, Mapping) else read_map(Path(names))


def _compared(golden: Golden, port: PortTensors, matching: Matching, rules: Rules) -> Comparison:
    with torch.no_grad():
        verdicts = tuple(
            _judged(about, golden.tensors.get(about.name), matching.found.get(about.name), port, rules)
            for about in golden.data.tensors
        )
        verdicts = _without_odd_layouts(verdicts, golden, matching, rules)
        verdicts = _with_usual_layouts(verdicts, golden, matching, rules)
    done = _comparison(golden, verdicts, candidate=port.origin, partial=rules.partial)
    setup = compare_setup(golden, port, verdicts)
    return msgspec.structs.replace(
        done,
        setup=setup,
        next_step=blame(setup) or done.next_step,
        unknown=_unmatched(matching, golden),
        notes=(*done.notes, *_random_note(golden), *_layout_notes(verdicts), *port.notes),
    )


def compare_named(golden: Golden, matched: Mapping[str, Tensor], *, candidate: str, basis: Basis) -> Comparison:
    """Compare tensors that have the names and the layout of the golden data: another run of the same model."""
    with torch.no_grad():
        verdicts = tuple(
            judge(about, golden.tensors.get(about.name), matched.get(about.name), basis)
            for about in golden.data.tensors
        )
    return _comparison(golden, verdicts, candidate=candidate, partial=False)


def _comparison(golden: Golden, verdicts: tuple[TensorVerdict, ...], *, candidate: str, partial: bool) -> Comparison:
    if partial:
        verdicts = tuple(map(_as_not_given, verdicts))
    first = next((verdict for verdict in verdicts if verdict.status in WRONG), None)
    compared = any(verdict.status not in _NOT_COMPARED and verdict.role is not Role.INPUT for verdict in verdicts)
    incomplete = _incomplete(verdicts)
    known = _with_known_inputs(golden, verdicts)
    layers = layer_errors(known)
    step = next_step(known)
    if first is None and incomplete and not partial:
        step = "save them, too, or accept a partial comparison with --partial"
    return Comparison(
        model=golden.data.model,
        candidate=candidate,
        golden_created=golden.data.created,
        passed=first is None and compared and (partial or not incomplete),
        incomplete=incomplete,
        first_wrong=None if first is None else first.name,
        first_wrong_module=None if first is None else first.module or "",
        layers=layers,
        spread=spread_words(layers),
        next_step=step,
        verdicts=verdicts,
        notes=_notes(golden, compared=compared),
    )


def _with_known_inputs(golden: Golden, verdicts: Sequence[TensorVerdict]) -> tuple[TensorVerdict, ...]:
    """An input of a module that was not given but has the bits of an earlier module's output: it has that verdict.

    Few ports save what their modules take, and most of it is what another module gave.
    """
    produced: dict[bytes, TensorVerdict] = {}
    known = []
    for verdict in verdicts:
        tensor = golden.tensors.get(verdict.name)
        key = b"" if tensor is None else sha256(str(tensor.shape).encode() + raw_bytes(tensor)).digest()
        source = produced.get(key) if verdict.role is Role.MODULE_INPUT and verdict.status is Status.NOT_GIVEN else None
        if verdict.role is Role.MODULE_OUTPUT and verdict.status not in _NOT_COMPARED:
            produced[key] = verdict
        about = {"name": verdict.name, "role": verdict.role, "module": verdict.module}
        known.append(verdict if source is None else msgspec.structs.replace(source, **about))
    return tuple(known)


# --- One tensor, in the layout of the port ---


def _judged(
    about: GoldenTensor, golden: Tensor | None, match: Match | None, port: PortTensors, rules: Rules
) -> TensorVerdict:
    if golden is None or match is None:
        return judge(about, golden, None if match is None else match.tensor, rules.basis)
    kept_as = port.kept_as.get(match.port)
    basis = replace(rules.basis, number_format=kept_as) if kept_as and is_format(kept_as) else rules.basis
    found = _in_golden_layout(about, golden, match.tensor, basis)
    given = port.tensors.get(match.port, match.tensor)
    return msgspec.structs.replace(
        found,
        candidate_shape=tuple(given.shape),
        candidate_dtype=kept_as or found.candidate_dtype,
        port_name=match.port,
        matched_by=match.by,
        layout=(*match.words, *found.layout),
        detail="; ".join(filter(None, (_layout_words(match.words, found), found.detail))),
    )


def _in_golden_layout(about: GoldenTensor, golden: Tensor, candidate: Tensor, basis: Basis) -> TensorVerdict:
    """Judge a tensor as it is; if it is wrong so, in the layouts that its values suggest."""
    same_shape = golden.shape == candidate.shape
    as_it_is = judge(about, golden, candidate, basis) if same_shape else None
    if as_it_is is not None and as_it_is.status not in WRONG:
        return as_it_is
    found = layouts_to_try(golden, candidate)
    tried = []
    for one in found:
        if one.layout.drops_padding and not one.layout.drops_only_padding(candidate):
            continue
        arranged = one.layout.undo(candidate)
        verdict = judge(about, golden, arranged, basis)
        ignored = nan_in_padding(candidate, arranged) if one.layout.drops_padding else 0
        detail = "; ".join(filter(None, (verdict.detail, f"{ignored} NaN in the padding" if ignored else "")))
        tried.append(msgspec.structs.replace(verdict, layout=one.layout.words, detail=detail))
        if verdict.status not in WRONG:
            return tried[-1]
    if as_it_is is not None:
        return as_it_is
    if tried and found[0].is_plausible:
        return tried[0]
    return judge(about, golden, candidate, basis)


def _without_odd_layouts(
    verdicts: tuple[TensorVerdict, ...], golden: Golden, matching: Matching, rules: Rules
) -> tuple[TensorVerdict, ...]:
    """A tensor that passes in an order of dimensions that the port does not use elsewhere does not simply pass.

    A port has one convention, and the search must not explain a fault away. With the golden sizes the golden order is
    the convention, unless the port shows another: a transposed square is wrong. With other sizes it is suspicious.
    """
    passed = [one for one in verdicts if one.matched_by is not None and one.status not in WRONG]
    used = Counter((one.shape, one.candidate_shape, one.layout) for one in passed)
    judged = []
    for about, verdict in zip(golden.data.tensors, verdicts, strict=True):
        match = matching.found.get(about.name)
        if match is None or match.words or verdict.status in WRONG or not _reorders(verdict.layout):
            judged.append(verdict)
        elif _sizes(verdict.shape) == _sizes(verdict.candidate_shape or ()):
            judged.append(
                verdict if _is_convention(verdict, used) else _in_golden_order(verdict, about, golden, match, rules)
            )
        else:
            judged.append(_unlike_others(verdict, used))
    return tuple(judged)


def _is_convention(verdict: TensorVerdict, used: Mapping[_Use, int]) -> bool:
    """Whether most tensors of this shape, or others whose sizes leave no choice, are in the order that was found."""
    alike = {key[2]: count for key, count in used.items() if key[:2] == (verdict.shape, verdict.candidate_shape)}
    turned = verdict.layout[-1]
    elsewhere = any(key[2] and key[2][-1] == turned and _sizes(key[0]) != _sizes(key[1] or ()) for key in used)
    return elsewhere or alike[verdict.layout] >= max(_FEWEST, _MOST * sum(alike.values()))


def _in_golden_order(
    verdict: TensorVerdict, about: GoldenTensor, golden: Golden, match: Match, rules: Rules
) -> TensorVerdict:
    """The verdict on the order that the golden shape promises, with the one in which the values would be right."""
    port = tuple(match.tensor.shape)
    plain = next((one for one in possible_layouts(about.shape, port) if not _reorders(one.words)), None)
    arranged = match.tensor if about.shape == port or plain is None else plain.undo(match.tensor)
    judged = judge(about, golden.tensors[about.name], arranged, rules.basis)
    if judged.status not in WRONG:  # both orders do, as in a symmetric tensor
        return msgspec.structs.replace(verdict, layout=())
    return msgspec.structs.replace(
        judged,
        candidate_shape=verdict.candidate_shape,
        candidate_dtype=verdict.candidate_dtype,
        port_name=verdict.port_name,
        matched_by=verdict.matched_by,
        detail=f"matches after: {', '.join(verdict.layout)}, but nothing else in the port has this order",
    )


def _unlike_others(verdict: TensorVerdict, used: Mapping[_Use, int]) -> TensorVerdict:
    """Suspicious where nearly all tensors with the same two shapes match after something else."""
    alike = {key[2]: count for key, count in used.items() if key[:2] == (verdict.shape, verdict.candidate_shape)}
    usual = max(alike, key=lambda layout: alike[layout])
    enough = sum(alike.values()) > _FEWEST and alike[usual] >= _MOST * sum(alike.values())
    if usual == verdict.layout or not enough:
        return verdict
    detail = f"{verdict.detail}; other tensors of these shapes match after: {', '.join(usual)}"
    return msgspec.structs.replace(verdict, status=Status.SUSPICIOUS, state=Status.SUSPICIOUS.value, detail=detail)


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _reorders(layout: Sequence[str]) -> bool:
    return any(word.startswith(("permute", "transpose")) for word in layout)


def _with_usual_layouts(
    verdicts: tuple[TensorVerdict, ...], golden: Golden, matching: Matching, rules: Rules
) -> tuple[TensorVerdict, ...]:
    """Values so wrong that they fit no layout are judged in one that correct tensors of the same port have."""
    usual = {one.layout for one in verdicts if one.layout and one.status not in WRONG}
    judged = []
    for about, verdict in zip(golden.data.tensors, verdicts, strict=True):
        match = matching.found.get(about.name) if verdict.status is Status.WRONG_SHAPE else None
        layouts = () if match is None else possible_layouts(about.shape, tuple(match.tensor.shape))
        layout = next((one for one in layouts if one.words in usual), None)
        if layout is None or match is None:
            judged.append(verdict)
            continue
        wrong = judge(about, golden.tensors[about.name], layout.undo(match.tensor), rules.basis)
        judged.append(_wrong_in_layout(verdict, wrong, layout.words))
    return tuple(judged)


def _wrong_in_layout(verdict: TensorVerdict, wrong: TensorVerdict, layout: tuple[str, ...]) -> TensorVerdict:
    """The verdict about the values in a layout; a pass is none, as the values did not suggest this layout."""
    if wrong.status not in WRONG:
        return verdict
    words = f"wrong even after: {', '.join(layout)}, the layout of other tensors"
    return msgspec.structs.replace(
        verdict,
        status=wrong.status,
        errors=wrong.errors,
        tolerance=wrong.tolerance,
        state=wrong.state,
        noise_multiple=wrong.noise_multiple,
        noise=wrong.noise,
        layout=layout,
        detail="; ".join(filter(None, (words, wrong.detail))),
    )


def _layout_words(fused: tuple[str, ...], found: TensorVerdict) -> str:
    steps = ", ".join((*fused, *found.layout))
    if not steps:
        return ""
    return f"wrong even after: {steps}" if found.status in WRONG else f"matches after: {steps}"


def _layout_notes(verdicts: tuple[TensorVerdict, ...]) -> tuple[str, ...]:
    passed = [one for one in verdicts if one.layout and one.status not in WRONG]
    turned = [one.name for one in passed if one.candidate_shape == one.shape]
    notes = (
        [f"{len(passed)} of {many(len(verdicts), 'tensor matches', 'tensors match')} after a change of layout"]
        if passed
        else []
    )
    if turned:
        notes.append(
            f"{_listed(turned)}: the golden shape, but the dimensions are in another order; code that expects the "
            "golden order reads wrong values"
        )
    return tuple(notes)


# --- What was not given, not matched, or cannot be trusted ---


def _as_not_given(verdict: TensorVerdict) -> TensorVerdict:
    if verdict.status is not Status.MISSING:
        return verdict
    return msgspec.structs.replace(verdict, status=Status.NOT_GIVEN, state=Status.NOT_GIVEN.value)


def _incomplete(verdicts: tuple[TensorVerdict, ...]) -> str:
    """What was not given; "" where at least half of the results were, with every output among them.

    Inputs do not count: a port takes them from the golden data.
    """
    results = [one for one in verdicts if one.role in _RESULTS and one.status is not Status.NOT_KEPT]
    lost = [one for one in results if one.status in _LOST]
    if 2 * len(lost) <= len(results) and not any(one.role is Role.OUTPUT for one in lost):
        return ""
    return f"{len(lost)} of {many(len(results), 'output')} of the model and its modules were not given"


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


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _unmatched(matching: Matching, golden: Golden) -> tuple[str, ...]:
    """The tensors that stand for no golden one, each with the reason or the output of the same shape."""
    wanted = [one for one in golden.data.tensors if one.role is Role.OUTPUT and one.name not in matching.found]
    hinted = []
    for name, reason in matching.unmatched.items():
        alike = [one.name for one in wanted if one.shape == tuple(matching.port[name].shape)]
        known = reason or (f"same shape as {alike[0]}" if len(alike) == 1 else "")
        hinted.append(f"{name} ({known})" if known else name)
    return tuple(hinted)


def _no_golden_name(golden: Golden, port: PortTensors, matching: Matching) -> str:
    wanted = [about.name for about in golden.data.tensors if about.role is Role.OUTPUT]
    given = ", ".join(_unmatched(matching, golden)[:_NAMED]) or "no tensors"
    more = " ..." if len(wanted) > _NAMED else ""
    return f"{port.origin} has no golden tensor name: it has {given}; name them {', '.join(wanted[:_NAMED])}{more}"
