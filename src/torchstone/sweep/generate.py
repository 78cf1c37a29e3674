"""Configurations -> valid vectors: neighbours of other sizes, a choice within a time budget, shrinking."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from msgspec.structs import replace

from torchstone.errors import InputError
from torchstone.record.base import Record
from torchstone.record.chain import StepResult, cut, is_chain, steps_of
from torchstone.record.config import Configuration, SeenConfiguration, TensorFacts
from torchstone.record.task import Ending, Limits, Task
from torchstone.record.tensor import TensorSpec, contiguous_strides, element_bits
from torchstone.record.value import Atom, Value, map_values, tensors_in
from torchstone.record.vector import Validity, Vector
from torchstone.sweep.vectors import (
    NEIGHBOURS,
    TRACED,
    TTNN_ROLE,
    cluster_of,
    payload_of,
    vector_of,
    with_reason,
)
from torchstone.workers.executor import Executor
from torchstone.workers.shrink import Sizes, shrink_sizes

# Real configurations -> their neighbours: other sizes, element types and strides that a model did not happen to use.
# Whether a neighbour is a valid call is not known here: it is asked on the meta device.


MOST_PER_VECTOR = 8
_SIZES_TRIED = 3
_OTHER_FLOATS = {
    "float32": ("bfloat16", "float16"),
    "bfloat16": ("float32",),
    "float16": ("float32",),
    "float64": ("float32",),
}
_GAP = 8  # elements between rows
_MATRIX = 2


def neighbours_of(vector: Vector, *, most: int = MOST_PER_VECTOR) -> Iterator[Vector]:
    """Vectors that differ from a traced one in one thing each, each different configuration once."""
    configuration = vector.configuration
    if configuration is None or vector.role == TTNN_ROLE or vector.refused:
        return
    known = {configuration.key}
    made = islice(_changed(configuration, vector.facts), 4 * most)
    for change, other, facts in made:
        key = other.key
        if key in known or len(known) > most:
            continue
        known.add(key)
        yield replace(
            vector,
            id=key,
            suite=NEIGHBOURS,
            configuration=other,
            facts=facts,
            neighbour_of=vector.id,
            change=change,
            cluster=cluster_of(other),
            calls=0,
            models=(),
        )


def _changed(
    configuration: Configuration, facts: tuple[TensorFacts, ...]
) -> Iterator[tuple[str, Configuration, tuple[TensorFacts, ...]]]:
    specs = [spec for argument in configuration.arguments for spec in tensors_in(argument.value)]
    if any(spec.stride is None for spec in specs):
        return
    for size, new in _other_sizes(specs):
        yield (f"size {size} -> {new}", *resized(configuration, facts, size, new))
    for old, new_dtype in _other_dtypes(specs):
        other = _rewritten(configuration, _retyped(old, new_dtype), _swap_dtype(old, new_dtype))
        yield f"{old} -> {new_dtype}", other, facts
    if not configuration.aliases:
        for number, spec in enumerate(specs):
            for change, laid_out in _other_layouts(spec):
                other = _rewritten(configuration, _only(number, laid_out), _same)
                yield f"tensor {number} {change}", other, facts


def resized(
    configuration: Configuration, facts: tuple[TensorFacts, ...], size: int, new: int
) -> tuple[Configuration, tuple[TensorFacts, ...]]:
    """The same call with one size changed wherever it stands, and what is then known of the values."""
    specs = [spec for argument in configuration.arguments for spec in tensors_in(argument.value)]
    other = _rewritten(configuration, lambda spec: _resized(spec, size, new), _swap_int(size, new))
    return other, _facts_resized(specs, facts, size, new)


def _other_sizes(specs: list[TensorSpec]) -> Iterator[tuple[int, int]]:
    """Sizes worth changing, the most shared ones first: to 1, to one more (no multiple of a tile), to 0."""
    counts: dict[int, int] = {}
    for spec in specs:
        for size in spec.shape:
            if size > 1:
                counts[size] = counts.get(size, 0) + 1
    chosen = sorted(counts, key=lambda size: (-counts[size], -size))[:_SIZES_TRIED]
    yield from ((size, 1) for size in chosen)
    yield from ((size, size + 1) for size in chosen)
    yield from ((size, 0) for size in chosen)


def _other_dtypes(specs: list[TensorSpec]) -> Iterator[tuple[str, str]]:
    for old in dict.fromkeys(spec.dtype for spec in specs):
        for new in _OTHER_FLOATS.get(old, ()):
            yield old, new


def _other_layouts(spec: TensorSpec) -> Iterator[tuple[str, TensorSpec]]:
    if len(spec.shape) < _MATRIX or spec.stride is None or not spec.is_contiguous or 0 in spec.shape:
        return
    columns = (*spec.shape[:-2], spec.shape[-1], spec.shape[-2])
    dense = contiguous_strides(columns)
    yield "column by column", replace(spec, stride=(*dense[:-2], dense[-1], dense[-2]))
    rows = contiguous_strides((*spec.shape[:-1], spec.shape[-1] + _GAP))
    yield "with gaps between rows", replace(spec, stride=rows, storage_offset=1)


def _resized(spec: TensorSpec, size: int, new: int) -> TensorSpec:
    if size not in spec.shape or spec.stride is None:
        return spec
    shape = tuple(new if one == size else one for one in spec.shape)
    before = spec.stride
    laid_out = sorted((dim for dim in range(len(shape)) if before[dim]), key=lambda dim: (-before[dim], dim))
    steps = dict(zip(laid_out, contiguous_strides(tuple(shape[dim] for dim in laid_out)), strict=True))
    return replace(spec, shape=shape, stride=tuple(steps.get(dim, 0) for dim in range(len(shape))))


def _facts_resized(
    specs: list[TensorSpec], facts: tuple[TensorFacts, ...], size: int, new: int
) -> tuple[TensorFacts, ...]:
    """Whole values no longer fit a tensor of another size, and indices must stay below what they index."""
    changed = []
    for fact in facts:
        values = None if size in specs[fact.tensor].shape else fact.values
        is_index = specs[fact.tensor].dtype.startswith(("int", "uint")) and isinstance(fact.highest, int)
        if is_index and new < size and fact.highest is not None and fact.highest >= new:
            top = max(new - 1, 0)
            low = min(int(fact.lowest or 0), top)
            changed.append(replace(fact, highest=top, lowest=low, values=None))
        else:
            changed.append(replace(fact, values=values))
    return tuple(changed)


def _rewritten(
    configuration: Configuration,
    change_spec: Callable[[TensorSpec], TensorSpec],
    change_plain: Callable[[Value], Value],
) -> Configuration:
    def rewrite(value: Value) -> Value:
        return change_spec(value) if isinstance(value, TensorSpec) else change_plain(value)

    arguments = tuple(replace(one, value=map_values(one.value, rewrite)) for one in configuration.arguments)
    return replace(configuration, arguments=arguments)


def _retyped(old: str, new: str) -> Callable[[TensorSpec], TensorSpec]:
    return lambda spec: replace(spec, dtype=new) if spec.dtype == old else spec


def _only(number: int, laid_out: TensorSpec) -> Callable[[TensorSpec], TensorSpec]:
    """Change one tensor, counted in the order they are met."""
    met = iter(range(1 << 30))
    return lambda spec: laid_out if next(met) == number else spec


def _swap_int(old: int, new: int) -> Callable[[Value], Value]:
    return lambda value: new if type(value) is int and value == old else value


def _swap_dtype(old: str, new: str) -> Callable[[Value], Value]:
    return lambda value: Atom(kind="dtype", text=new) if value == Atom(kind="dtype", text=old) else value


def _same(value: Value) -> Value:
    return value


# --- Validity: every vector is called on the meta device, where a call costs nothing ---


ENTRY = "torchstone.sweep.child.validity:check_vectors"
WARM_UP = "torchstone.sweep.child.validity:warm_up"  # what the environment of these tasks is set up with
USUAL_ROLES = frozenset(
    {"compute", "view", "random", TTNN_ROLE}
)  # what only may draw random numbers is found out when it runs
_CALLS_PER_TASK = 100
_LIMITS = Limits(deadline_s=120.0)


def generate(
    seen: Iterable[SeenConfiguration],
    executor: Executor,
    *,
    suite: str = TRACED,
    neighbours: bool = False,
    roles: frozenset[str] = USUAL_ROLES,
) -> list[Vector]:
    """A vector for each configuration, and for each of its neighbours that is a valid call.

    A traced call that cannot be made here stays as a vector that is not valid; a neighbour that cannot be made never
    was one. Calls of other roles (factories) are not valid either: what they give need not have any value.
    """
    traced = checked([vector_of(one, suite) for one in seen], executor)
    wanted = [_of_roles(vector, roles) for vector in traced]
    if not neighbours:
        return wanted
    known = {vector.id for vector in wanted}
    valid = [vector for vector in wanted if vector.validity is Validity.VALID]
    made = {one.id: one for one in chain.from_iterable(map(neighbours_of, valid)) if one.id not in known}
    beside = checked(list(made.values()), executor, unknown_is_valid=False)
    return wanted + [vector for vector in beside if vector.validity is Validity.VALID]


def checked(vectors: Sequence[Vector], executor: Executor, *, unknown_is_valid: bool = True) -> list[Vector]:
    """The same vectors in the same order, with their roles, and with a reason where they are no valid calls."""
    asked = {one.id: one for one in vectors if one.validity is Validity.VALID and one.role != TTNN_ROLE}
    known = {vector.id: vector for vector in vectors}
    for identity, answer in _answers(list(asked.values()), executor):
        known[identity] = _judged(asked[identity], answer, unknown_is_valid=unknown_is_valid)
    return [known[vector.id] for vector in vectors]


def _answers(vectors: list[Vector], executor: Executor) -> Iterator[tuple[str, dict[str, object] | None]]:
    """What the child side says of each; None for those whose process did not live to answer."""
    tasks: dict[str, tuple[Vector, ...]] = {}
    for number, group in enumerate(_groups(vectors)):
        tasks[f"check {number}"] = group
        payload = {"calls": [payload_of(vector) for vector in group]}
        executor.submit(Task(id=f"check {number}", entry=ENTRY, payload=payload, limits=_LIMITS))
    for result in executor.results():
        group = tasks[result.id]
        if result.ending is not Ending.ANSWERED and len(group) > 1:  # one of them did it: ask each alone
            for place, vector in enumerate(group):
                alone = f"{result.id}.{place}"
                tasks[alone] = (vector,)
                executor.submit(Task(id=alone, entry=ENTRY, payload={"calls": [payload_of(vector)]}, limits=_LIMITS))
            continue
        answers = result.answer if result.ending is Ending.ANSWERED else [None]
        for vector, answer in zip(group, answers or (), strict=True):
            yield vector.id, answer


def _groups(vectors: list[Vector]) -> Iterator[tuple[Vector, ...]]:
    for first in range(0, len(vectors), _CALLS_PER_TASK):
        yield tuple(vectors[first : first + _CALLS_PER_TASK])


def _judged(vector: Vector, answer: dict[str, Any] | None, *, unknown_is_valid: bool) -> Vector:
    if answer is None:
        return with_reason(vector, "torch did not live to say whether it is a valid call")
    vector = replace(vector, role=answer["role"])
    if vector.refused:  # not valid on purpose
        return vector
    valid = unknown_is_valid if answer["valid"] is None else answer["valid"]
    return vector if valid else with_reason(vector, answer["reason"])


def _of_roles(vector: Vector, roles: frozenset[str]) -> Vector:
    if vector.validity is Validity.INVALID or vector.role in (*roles, TTNN_ROLE):
        return vector
    return with_reason(vector, f"its role is {vector.role}; ask for it with --roles")


# --- A choice within a time budget: cover the most clusters, then the most calls ---


_UNIT_S = {"s": 1, "m": 60, "h": 3600, "": 1}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)")
_USUAL_S = 0.01  # one vector in a process that is ready
_BYTES_PER_S = 2e8  # making inputs, running twice, comparing


class Choice(Record, frozen=True, kw_only=True):
    """What fits into a budget, and how much of the whole it covers."""

    vectors: tuple[Vector, ...]
    expected_s: float
    clusters: tuple[int, int]  # covered, all
    calls: tuple[int, int]


def parse_duration(text: str) -> float:
    """Seconds from 90, 90s, 10m or 1.5h."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        msg = f"--budget {text!r} is not a duration; give it as 90s, 10m or 1.5h"
        raise InputError(msg)
    return float(found[1]) * _UNIT_S[found[2]]


def choose(vectors: Sequence[Vector], budget_s: float | None, known_s: Mapping[str, float] | None = None) -> Choice:
    """Choose within a budget; `known_s` are times of earlier runs. Vectors that are not valid cost nothing and stay."""
    times = {vector.id: _expected_s(vector, known_s or {}) for vector in vectors}
    valid = [vector for vector in vectors if vector.validity is Validity.VALID]
    chosen: set[str] = set()
    spent = 0.0
    for vector in _by_worth(valid, times):
        if budget_s is not None and spent + times[vector.id] > budget_s:
            continue
        chosen.add(vector.id)
        spent += times[vector.id]
    kept = tuple(vector for vector in vectors if vector.validity is Validity.INVALID or vector.id in chosen)
    picked = [vector for vector in valid if vector.id in chosen]
    return Choice(
        vectors=kept,
        expected_s=spent,
        clusters=(len({one.cluster for one in picked}), len({one.cluster for one in valid})),
        calls=(sum(one.calls for one in picked), sum(one.calls for one in valid)),
    )


def _by_worth(vectors: Sequence[Vector], times: Mapping[str, float]) -> list[Vector]:
    """The most called of each cluster first, then the rest; among equals the cheaper and then the name decide."""
    ranked = sorted(vectors, key=lambda one: (-one.calls, times[one.id], one.id))
    first_of: dict[str, str] = {}
    for vector in ranked:
        first_of.setdefault(vector.cluster, vector.id)
    leaders = set(first_of.values())
    return sorted(ranked, key=lambda one: one.id not in leaders)  # stable: leaders first, else as ranked


def _expected_s(vector: Vector, known_s: Mapping[str, float]) -> float:
    if vector.id in known_s:
        return known_s[vector.id]
    if vector.configuration is None:
        return _USUAL_S
    specs = [spec for argument in vector.configuration.arguments for spec in tensors_in(argument.value)]
    return _USUAL_S + sum(map(_size_bytes, specs)) / _BYTES_PER_S


def _size_bytes(spec: TensorSpec) -> int:
    return spec.elements * (element_bits(spec.dtype) or 64) // 8


# --- Shrinking a failing vector ---


MOST_ROUNDS = 40
_MOST_RUNS = 400

StillFails = Callable[[list[Vector]], Vector | None]  # the first of them that fails as the original does


def shorten(vector: Vector, results: Sequence[StepResult], still_fails: StillFails) -> Vector:
    """The shortest part of a chain that fails in the same way: one op where it fails alone."""
    configuration = vector.configuration
    if configuration is None or not is_chain(vector.op):
        return vector
    steps = len(steps_of(configuration))
    for length in range(1, steps):
        windows = [range(first, first + length) for first in range(steps - length + 1)]
        parts = {one.id: one for one in (_part(vector, configuration, window, results) for window in windows)}
        found = still_fails(list(parts.values()))
        if found is not None:
            return found
    return vector


def _part(vector: Vector, configuration: Configuration, window: range, results: Sequence[StepResult]) -> Vector:
    part, facts = cut(configuration, vector.facts, window, results)
    return replace(vector, id=part.key, op=part.op, configuration=part, facts=facts, cluster=cluster_of(part))


def shrink(vector: Vector, still_fails: StillFails) -> Vector:
    """The vector with the smallest sizes found to fail in the same way."""
    configuration = vector.configuration
    if configuration is None:
        return vector

    def first_failing(candidates: Sequence[Sizes]) -> int | None:
        vectors = [_with_sizes(vector, configuration, sizes) for sizes in candidates]
        found = still_fails(vectors)
        return None if found is None else [one.id for one in vectors].index(found.id)

    shapes = [spec.shape for argument in configuration.arguments for spec in tensors_in(argument.value)]
    sizes = shrink_sizes(shapes, first_failing, most_runs=_MOST_RUNS, passes=MOST_ROUNDS)
    return _with_sizes(vector, configuration, sizes) if sizes else vector


def _with_sizes(vector: Vector, configuration: Configuration, sizes: Sizes) -> Vector:
    """Ascending: a size that another one was changed to is not changed again."""
    facts = vector.facts
    for size, new in sorted(sizes.items()):
        configuration, facts = resized(configuration, facts, size, new)
    return replace(vector, id=configuration.key, configuration=configuration, facts=facts)
