"""Errors at every layer -> how they came about: many layers that add equally, one source, or an amplifier."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from statistics import median
from typing import Any, NamedTuple

import msgspec

from torchstone.check.known_findings import code_of_drift
from torchstone.check.runner import Runner
from torchstone.check.settings import Settings
from torchstone.record.check import Drift, DriftKind, DriftLayer, Finding, Outcome, PreciseSet, UnitResult
from torchstone.record.task import Ending, Limits, Task
from torchstone.record.trace import Trace
from torchstone.units import many

WITHIN_NOISE = 3.0  # times the noise: what the judge calls wrong beyond
_STANDS_OUT = 5.0  # times the median of the other layers
_COUNTS = 0.1  # of the largest: what adds less is no source
_MOST = 0.5  # of the variance of the error
_FEW = 0.5  # of the layers of the same classes
_AMPLIFIES = 2.5
_AMPLIFIES_MORE = 2.0  # times the median of the factors
_OUTSIDE = 2.0  # times any error before it
_FEWEST_LAYERS = 3
_MOST_NAMED = 3
_CONTAINERS = ("torch.nn.modules.container.",)


# --- The layers of a model ---


def layer_rows(trace: Trace) -> list[int]:
    """The module calls that divide a model into layers, in the order in which they run; none contains another.

    A wrapper is opened, and so is a stack. A member of a stack of equal modules is one layer, unless it is a stack.
    A module that is also called elsewhere is none: its calls could not be distinguished.
    """
    calls = trace.module_calls
    inside: dict[int, list[int]] = {}
    for row, parent in enumerate(calls.parents):
        inside.setdefault(parent, []).append(row)
    compound = {module.parent for module in trace.modules}  # a compound module may run as one fused op
    rows = [
        _Call(trace.modules[number].path, trace.modules[number].class_name, number in compound, end - first)
        for number, first, end in zip(calls.modules, calls.first_ops, calls.end_ops, strict=True)
    ]
    layers = _Layers(rows, inside).below(0)
    while len(layers) < _FEWEST_LAYERS and any(inside.get(row) for row in layers):
        layers = [one for row in layers for one in inside.get(row) or [row]]
    every, chosen = Counter(calls.modules), Counter(calls.modules[row] for row in layers)
    return [
        row
        for row in layers
        if trace.modules[calls.modules[row]].path and every[calls.modules[row]] == chosen[calls.modules[row]]
    ]


class _Call(NamedTuple):
    """One module call."""

    path: str
    class_name: str
    is_compound: bool  # whether its module has modules
    ops: int

    @property
    def is_numbered(self) -> bool:
        """Whether its module is an item of a list: layers.3."""
        return self.path.rpartition(".")[2].isdigit()


class _Layers:
    """Opens module calls; `inside` has the calls in each call."""

    def __init__(self, calls: Sequence[_Call], inside: Mapping[int, Sequence[int]]) -> None:
        self._calls = calls
        self._inside = inside

    def below(self, row: int) -> list[int]:
        """The layers in a call."""
        found = []
        stacked = self._stacked(row)
        for child in self._inside.get(row, ()):
            found += self.below(child) if self._inside.get(child) and self._opens(child, stacked) else [child]
        return found

    def _opens(self, row: int, stacked: set[str]) -> bool:
        if self._is_container(row):
            return True
        return self._has_stack(row) if self._calls[row].class_name not in stacked else self._is_stack(row)

    def _stacked(self, row: int) -> set[str]:
        """The classes of compound modules of which a call has several."""
        parts = [self._calls[child] for child in self._parts(row)]
        counts = Counter(part.class_name for part in parts if part.is_compound)
        return {name for name, count in counts.items() if count > 1}

    def _is_stack(self, row: int) -> bool:
        """Whether most of a call is the numbered members of a stack: a stage of a network for images, an encoder."""
        stacked = self._stacked(row)
        parts = [self._calls[part] for part in self._parts(row)]
        members = sum(part.ops for part in parts if part.class_name in stacked and part.is_numbered)
        return 2 * members > self._calls[row].ops

    def _has_stack(self, row: int) -> bool:
        return bool(self._stacked(row)) or any(self._has_stack(child) for child in self._inside.get(row, ()))

    def _parts(self, row: int) -> list[int]:
        """The calls in a call, those in containers in their place."""
        found = []
        for child in self._inside.get(row, ()):
            found += self._parts(child) if self._is_container(child) else [child]
        return found

    def _is_container(self, row: int) -> bool:
        return self._calls[row].class_name.startswith(_CONTAINERS)


# --- Whether to look, and the measurement ---


def is_unexplained(root: UnitResult | None, findings: Sequence[Finding]) -> bool:
    """Whether the model's values are wrong, and nothing was proven to be the cause."""
    if root is None or root.outcome is not Outcome.WRONG or root.numbers is None or root.numbers.misplaced:
        return False
    return not any(one.proven and one.outcome is Outcome.WRONG for one in findings)


def measure_drift(trace: Trace, runner: Runner, settings: Settings) -> Drift | str:
    """The drift of the model that the runner's processes hold; a sentence where it cannot be measured."""
    rows = layer_rows(trace)
    paths = [trace.modules[trace.module_calls.modules[row]].path for row in rows]
    if not paths:
        return "drift was not measured: the model has no modules inside"
    limits = msgspec.structs.replace(
        settings.limits, deadline_s=settings.limits.deadline_s * (2 + len(paths)), retries_timeout=False
    )
    payload: dict[str, object] = {"backend": settings.backend_payload, "profile": settings.profile, "layers": paths}
    answer = _ask(runner, "drift:measure", payload, limits)
    if isinstance(answer, str):
        return f"drift was not measured: {answer}"
    found = classify(answer["layers"], answer["final"], observed=answer["observed"])
    if found.kind is DriftKind.NONE:
        return found
    sources = found.culprits if found.kind in (DriftKind.SINGLE_SOURCE, DriftKind.SEVERAL_SOURCES) else ()
    payload |= {"sources": list(sources), "deadline_s": limits.deadline_s}
    return with_precise_set(found, _ask(runner, "precision:smallest_precise_set", payload, limits))


def _ask(runner: Runner, function: str, payload: dict[str, object], limits: Limits) -> dict[str, Any] | str:
    entry = f"torchstone.check.child.{function}"
    ended = runner.fetch(Task(id=function, entry=entry, payload=payload, limits=limits))
    if ended.ending is Ending.ANSWERED and isinstance(ended.answer, dict):
        return ended.answer
    return (ended.evidence.error or ended.ending.value).partition("\n")[0]


def with_precise_set(found: Drift, answer: Mapping[str, Any] | str) -> Drift:
    """A drift with the set of operators that was found for it, or why there is none."""
    if isinstance(answer, str) or not answer.get("ops"):
        why = answer if isinstance(answer, str) else str(answer.get("why", "unknown"))
        return msgspec.structs.replace(found, why_no_precise_set=why)
    chosen = PreciseSet(
        ops=tuple(answer["ops"]),
        layers=tuple(answer["layers"]),
        calls=answer["calls"],
        noise_multiple_before=answer["before"],
        noise_multiple_after=answer["after"],
    )
    where = f" in {_named(chosen.layers)}" if chosen.layers else ""
    sentence = f"{found.verdict}; with {', '.join(chosen.ops)}{where} in higher precision the model is within noise"
    return msgspec.structs.replace(found, precise_set=chosen, verdict=sentence)


# --- The verdict ---


def classify(measured: Sequence[Mapping[str, object]], final: Mapping[str, Any], observed: str = "one run") -> Drift:
    """The verdict over layers as `child.drift` measures them; `final` is the error of the model's outputs."""
    layers = _with_shares([_layer(one) for one in measured])
    kind, culprits, words = _verdict(layers, final)
    first = next((one.path for one in layers if (one.total_noise_multiple or 0.0) > WITHIN_NOISE), None)
    if kind is not DriftKind.NONE and first is not None:
        words = f"{words}; first layer beyond noise: {first}"
    return Drift(
        kind=kind,
        code=code_of_drift(kind),
        verdict=words,
        layers=tuple(layers),
        culprits=tuple(one.path for one in culprits),
        first_beyond_noise=first,
        relative_error=final.get("relative"),
        noise_multiple=final.get("multiple"),
        observed=observed,
    )


def _verdict(layers: Sequence[DriftLayer], final: Mapping[str, Any]) -> tuple[DriftKind, Sequence[DriftLayer], str]:
    largest = max(layers, key=_multiple, default=None)
    if final.get("multiple", 0.0) <= WITHIN_NOISE and (largest is None or _multiple(largest) <= WITHIN_NOISE):
        most = "" if largest is None else f" (the most: {largest.path}, {_multiple(largest):.2g} times the noise)"
        return DriftKind.NONE, (), f"no drift: every layer is within noise{most}"
    amplifier = _amplifier(layers)
    if amplifier is not None:
        factor = amplifier.amplification or 0.0
        return DriftKind.AMPLIFIER, (amplifier,), f"{amplifier.path} amplifies {factor:.2g}x the error that it inherits"
    outside = _outside(layers, final)
    if outside:
        return DriftKind.OUTSIDE_LAYERS, (), f"the error is added outside the layers, {outside}"
    sources = _sources(layers)
    single = _dominant(sources)
    if single is not None:
        only = f"single source: {single.path} adds {_percent(single.share)} of the error"
        alone = ", but not when it runs alone" if single.note else ""
        return DriftKind.SINGLE_SOURCE, (single,), f"{only}{alone}"
    classes = {one.class_name for one in sources}
    alike = [one for one in layers if one.class_name in classes]
    if len(sources) < _FEW * len(alike):
        named = _named([one.path for one in sources])
        share = _percent(sum(one.share or 0.0 for one in sources))
        words = f"{len(sources)} of {many(len(layers), 'layer adds', 'layers add')} {share} of the error: {named}"
        return DriftKind.SEVERAL_SOURCES, sources, words
    each = median(one.added or 0.0 for one in sources)
    words = (
        f"no single culprit: {many(len(sources), 'layer adds', 'layers add')} about equally (a "
        f"relative error of {each:.2g} each)"
    )
    return DriftKind.UNIFORM, (), words


def _multiple(layer: DriftLayer) -> float:
    return layer.added_noise_multiple or 0.0


def _amplifier(layers: Sequence[DriftLayer]) -> DriftLayer | None:
    """The layer that multiplies what it inherits, where most of the error comes from that."""
    known = [one for one in layers if one.amplification is not None]
    if not known:
        return None
    top = max(known, key=lambda one: one.amplification or 0.0)
    factor = top.amplification or 0.0
    others = [one.amplification or 0.0 for one in known if one is not top]
    usual = max(1.0, median(others)) if others else 1.0
    before = layers[: layers.index(top)]
    inherited = sum(one.share or 0.0 for one in before)
    if factor < _AMPLIFIES or factor < _AMPLIFIES_MORE * usual or inherited < _MOST:
        return None
    return None if _dominant(_sources(before)) is not None and len(before) > 1 else top


def _sources(layers: Sequence[DriftLayer]) -> list[DriftLayer]:
    """The layers that add an error worth naming: beside the largest one, both in itself and over its noise."""
    most = max((one.added or 0.0 for one in layers), default=0.0)
    largest = max(map(_multiple, layers), default=0.0)
    beyond = WITHIN_NOISE if largest > WITHIN_NOISE else 0.0
    return [
        one
        for one in layers
        if (one.added or 0.0) > 0.0
        and _multiple(one) > beyond
        and ((one.added or 0.0) >= _COUNTS * most or _multiple(one) >= _COUNTS * largest)
    ]


def _dominant(sources: Sequence[DriftLayer]) -> DriftLayer | None:
    """The one source that stands out by its share, its error and its multiple of the noise."""
    if not sources:
        return None
    top = max(sources, key=lambda one: one.share or 0.0)
    others = [one for one in sources if one is not top]
    if (top.share or 0.0) < _MOST:
        return None
    if not others:
        return top
    usual = median(one.added or 0.0 for one in others)
    usual_multiple = median(map(_multiple, others))
    stands_out = (top.added or 0.0) >= _STANDS_OUT * usual and _multiple(top) >= _STANDS_OUT * usual_multiple
    return top if stands_out else None


def _outside(layers: Sequence[DriftLayer], final: Mapping[str, Any]) -> str:
    """Where an error begins that no layer adds: "before layers.3"; "" where the layers explain it."""
    worst = 0.0
    for place, one in enumerate(layers):
        before = layers[:place]
        explained = sum((other.added or 0.0) * _later(before, number) for number, other in enumerate(before))
        if (one.inherited or 0.0) > _OUTSIDE * max(worst, explained) and (
            one.total_noise_multiple or 0.0
        ) > WITHIN_NOISE:
            return f"before {one.path}"
        worst = max(worst, one.total or 0.0)
    explained = sum((one.added or 0.0) * _later(layers, place) for place, one in enumerate(layers))
    beyond = final.get("multiple", 0.0) > WITHIN_NOISE and final.get("relative", 0.0) > _OUTSIDE * max(worst, explained)
    return "after the last layer" if beyond else ""


def _layer(one: Mapping[str, Any]) -> DriftLayer:
    alone, total = one.get("alone", {}), one.get("total", {})
    added = one.get("added") or alone
    factor, note = one.get("factor"), ""
    if "alone_on_inherited" in one:
        # Alone on eager's inputs it is right. Alone on what it inherited it is wrong, too: it is these values.
        if one["alone_on_inherited"].get("multiple", 0.0) > WITHIN_NOISE and one.get("inherited"):
            factor = max(factor or 0.0, total.get("relative", 0.0) / one["inherited"])
            added, note = alone, "its own error depends on the error that it inherits"
        else:
            note = "it adds its error only inside the whole model"
    return DriftLayer(
        path=one["path"],
        class_name=one["class_name"],
        added=added.get("relative"),
        added_noise_multiple=added.get("multiple"),
        added_alone=alone.get("relative"),
        added_alone_noise_multiple=alone.get("multiple"),
        inherited=one.get("inherited"),
        amplification=factor,
        total=total.get("relative"),
        total_noise_multiple=total.get("multiple"),
        note=note or alone.get("why", ""),
    )


def _with_shares(layers: Sequence[DriftLayer]) -> list[DriftLayer]:
    """Each layer's part of the final error: what it adds, times the factors of the layers after it, squared."""
    parts = [((one.added or 0.0) * _later(layers, place)) ** 2 for place, one in enumerate(layers)]
    whole = sum(parts)
    return [
        msgspec.structs.replace(one, share=part / whole if whole else None)
        for one, part in zip(layers, parts, strict=True)
    ]


def _later(layers: Sequence[DriftLayer], place: int) -> float:
    return prod(one.amplification for one in layers[place + 1 :] if one.amplification is not None)


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_NAMED
    return ", ".join(paths[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _percent(share: float | None) -> str:
    return "an unknown part" if share is None else f"{100 * share:.3g} %"
