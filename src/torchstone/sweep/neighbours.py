"""Real configurations -> their neighbours: other sizes, element types and strides that a model did not happen to use.

Whether a neighbour is a valid call is not known here: it is asked on the meta device.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from msgspec.structs import replace

from torchstone.record.config import Configuration, TensorFacts
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Atom, Entries, Items, Value, tensors_in
from torchstone.record.vector import Vector
from torchstone.sweep.vectors import NEIGHBOURS, cluster_of, is_contiguous

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
    if configuration is None:
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
    if (
        len(spec.shape) < _MATRIX
        or spec.stride is None
        or not is_contiguous(spec.shape, spec.stride)
        or 0 in spec.shape
    ):
        return
    columns = (*spec.shape[:-2], spec.shape[-1], spec.shape[-2])
    dense = _dense(columns)
    yield "column by column", replace(spec, stride=(*dense[:-2], dense[-1], dense[-2]))
    rows = _dense((*spec.shape[:-1], spec.shape[-1] + _GAP))
    yield "with gaps between rows", replace(spec, stride=rows, storage_offset=1)


def _resized(spec: TensorSpec, size: int, new: int) -> TensorSpec:
    if size not in spec.shape or spec.stride is None:
        return spec
    shape = tuple(new if one == size else one for one in spec.shape)
    before = spec.stride
    laid_out = sorted((dim for dim in range(len(shape)) if before[dim]), key=lambda dim: (-before[dim], dim))
    steps = dict(zip(laid_out, _dense(tuple(shape[dim] for dim in laid_out)), strict=True))
    return replace(spec, shape=shape, stride=tuple(steps.get(dim, 0) for dim in range(len(shape))))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps = []
    step = 1
    for size in reversed(shape):
        steps.append(step)
        step *= max(size, 1)
    return tuple(reversed(steps))


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
        match value:
            case TensorSpec():
                return change_spec(value)
            case Items(kind=kind, items=items):
                return Items(kind=kind, items=tuple(map(rewrite, items)))
            case Entries(entries=entries):
                return Entries(entries=tuple((key, rewrite(item)) for key, item in entries))
            case _:
                return change_plain(value)

    arguments = tuple(Argument(name=one.name, value=rewrite(one.value)) for one in configuration.arguments)
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
