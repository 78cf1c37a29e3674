"""Layouts of a port: dimensions in another order, merged, split, added, padded to tiles -> the golden layout.

A port keeps the same values in the layout of its device: NHWC, `[1, 1, N*H*W, C]`, rows and columns padded to 32. The
search lists every way to undo such a layout that gives the golden shape, simplest first, and scores each on a sample of
elements. Whether the values are right is not decided here: the tensor in the golden layout is judged as any other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, permutations
from math import isfinite, prod, sqrt

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Passes = Callable[[Tensor, Tensor], bool]  # whether a candidate would pass for a golden tensor
Shape = tuple[int, ...]
Positions = tuple[npt.NDArray[np.int64], ...]  # one array for each dimension
Numbers = npt.NDArray[np.float64] | npt.NDArray[np.complex128]

TILE = 32
_MAX_PERMUTED = 6  # dimensions larger than 1: more are compared in their own order only
_MAX_LAYOUTS = 4000  # bounds the search where most dimensions are equal
_SAMPLE = 2048
_MATRIX = 2  # rows and columns, which are padded to tiles
_NHWC = (0, 2, 3, 1)
_CHANNELS_LAST = {_NHWC: "NHWC to NCHW", (0, 2, 3, 4, 1): "NDHWC to NCDHW"}  # the golden dimensions in a port's order
_TILE_WORDS = "drop tile padding"
LARGEST = 16  # magnitudes that recognise a tensor in any layout
_FIRST_LOOK = 128  # elements that rule most layouts out
_TRIED = 4  # layouts whose values are judged in full
_CLEARLY = 10.0  # how much closer another order of dimensions of the same shape must be
_EQUAL = 1e-9
_ENOUGH = 8  # elements from which on a correlation says something
_PLAUSIBLE = 0.5  # a score below it says that the layout is right, even if the values are not


# --- Steps: what turns a port's tensor into one of the golden shape ---


@dataclass(frozen=True, slots=True)
class Step:
    """One step, with the shape that it is applied to."""

    kind: str  # cut, reshape, permute
    before: Shape
    numbers: Shape  # the sizes to keep, the new shape, the order of dimensions

    def apply(self, tensor: Tensor) -> Tensor:
        """The tensor after this step."""
        match self.kind:
            case "cut":
                return tensor[tuple(map(slice, self.numbers))]
            case "reshape":
                return tensor.reshape(self.numbers)
            case _:
                return tensor.permute(self.numbers)

    def trace_back(self, index: Positions) -> Positions:
        """Where elements of the result come from; so a layout is scored without moving the whole tensor."""
        match self.kind:
            case "cut":
                return index
            case "reshape":
                flat = np.ravel_multi_index(index, self.numbers) if self.numbers else np.zeros(1, dtype=np.int64)
                return np.unravel_index(flat, self.before) if self.before else ()
            case _:
                source = list(index)
                for place, dimension in enumerate(self.numbers):
                    source[dimension] = index[place]
                return tuple(source)


@dataclass(frozen=True, slots=True)
class Layout:
    """A way from a port's layout to the golden one."""

    steps: tuple[Step, ...]
    words: tuple[str, ...]  # in order of application
    cost: int  # the simplest explanation has the smallest

    def undo(self, tensor: Tensor) -> Tensor:
        """The tensor in the golden layout."""
        for step in self.steps:
            tensor = step.apply(tensor)
        return tensor

    def sources(self, index: Positions) -> Positions:
        """The positions in the port's tensor of golden positions."""
        for step in reversed(self.steps):
            index = step.trace_back(index)
        return index

    @property
    def drops_padding(self) -> bool:
        """Whether elements of the port's tensor are not compared."""
        return any(step.kind == "cut" for step in self.steps)

    def drops_only_padding(self, tensor: Tensor) -> bool:
        """Whether what is not compared can be padding: any values behind the rows of tiles, else one value.

        A result with one row too many is not a padded one.
        """
        if self.words[0].startswith(_TILE_WORDS):
            return True
        for step in self.steps:
            if step.kind == "cut":
                dropped = (
                    tensor.narrow(place, kept, there - kept)
                    for place, (there, kept) in enumerate(zip(step.before, step.numbers, strict=True))
                    if kept < there
                )
                return all(_is_constant(one) for one in dropped)
            tensor = step.apply(tensor)
        return True


def _is_constant(tensor: Tensor) -> bool:
    flat = tensor.reshape(-1)
    return bool((flat == flat[0]).all()) or bool((flat != flat).all())  # noqa: PLR0124 - NaN


_IDENTITY = Layout((), (), 0)


def _padded(size: int) -> int:
    return -(-size // TILE) * TILE


# --- All layouts that fit two shapes ---


@lru_cache(maxsize=1024)
def possible_layouts(golden: Shape, port: Shape) -> tuple[Layout, ...]:
    """Every layout, simplest first, that turns the shape of a port into the golden shape; not the identity."""
    found: dict[tuple[Step, ...], Layout] = {}
    for layout in islice(chain(_merged(golden, port), _split(golden, port)), _MAX_LAYOUTS):
        known = found.get(layout.steps)
        if layout.steps and (known is None or layout.cost < known.cost):
            found[layout.steps] = layout
    return tuple(sorted(found.values(), key=lambda one: (one.cost, [(step.kind, step.numbers) for step in one.steps])))


def _orders(count: int) -> Iterator[Shape]:
    """Orders of dimensions, the given one first."""
    if count > _MAX_PERMUTED:
        yield tuple(range(count))
    else:
        yield from permutations(range(count))


@dataclass(frozen=True, slots=True)
class _Group:
    """Dimensions that share one dimension of the port, which may be padded: behind them, or behind the inner ones."""

    members: Shape  # places in the order of dimensions
    outer: int = 1  # with padding inside: how many padded blocks there are
    kept: int = 1  # elements to keep, of the dimension or of each block


def _merged(golden: Shape, port: Shape) -> Iterator[Layout]:
    """Layouts in which a dimension of the port is one or several golden ones, or none."""
    large = [place for place, size in enumerate(golden) if size != 1]
    for order in _orders(len(large)):
        moved = tuple(large[place] for place in order)
        sizes = tuple(golden[place] for place in moved)
        for groups in _groupings(sizes, port, 0, 0):
            yield _merged_layout(golden, port, moved, groups)


def _groupings(sizes: Shape, port: Shape, dimension: int, first: int) -> Iterator[tuple[_Group, ...]]:
    """Ways to lay the sizes, in order, into the dimensions of a port, the rest of each being padding."""
    if dimension == len(port):
        if first == len(sizes):
            yield ()
        return
    for end in range(first, len(sizes) + 1):
        if prod(sizes[first:end]) > port[dimension]:
            return
        for group in _fits(sizes[first:end], first, port, dimension):
            for rest in _groupings(sizes, port, dimension + 1, end):
                yield (group, *rest)


def _fits(sizes: Shape, first: int, port: Shape, dimension: int) -> Iterator[_Group]:
    whole, there = prod(sizes), port[dimension]
    members = tuple(range(first, first + len(sizes)))
    from_end = len(port) - dimension
    if whole == there:
        yield _Group(members, 1, whole)
        return
    in_tile = from_end <= _MATRIX and there == _padded(whole)
    if in_tile or (sizes and (from_end <= _MATRIX or len(sizes) == 1)):
        yield _Group(members, 1, whole)
    for cut in range(1, len(sizes)):  # rows that were padded before they were flattened
        outer, inner = prod(sizes[:cut]), prod(sizes[cut:])
        if from_end == _MATRIX and outer * _padded(inner) == there:
            yield _Group(members, outer, inner)


def _merged_layout(golden: Shape, port: Shape, moved: Shape, groups: Sequence[_Group]) -> Layout:
    steps, words, cost = _cut_steps(port, groups)
    order = _with_ones(golden, moved)
    before = tuple(golden[place] for place in order)
    shape = steps[-1].numbers if steps else port
    merges = any(len(group.members) > 1 for group in groups)
    if shape != before:
        steps.append(Step("reshape", shape, before))
        if merges:
            words.append(_unflatten_words(before, order, groups, moved))
            cost += 2
        else:
            words.append(_ones_words(shape, before))
            cost += 1
    if list(order) != sorted(order):
        back = tuple(order.index(place) for place in range(len(order)))
        steps.append(Step("permute", before, back))
        words.append(_permute_words(order))
        cost += 3 + _disorder(order)
    return Layout(tuple(steps), tuple(words), cost)


def _cut_steps(port: Shape, groups: Sequence[_Group]) -> tuple[list[Step], list[str], int]:
    """The steps that drop padding: of whole dimensions, then inside of flattened rows."""
    split = tuple(size for group, there in zip(groups, port, strict=True) for size in _parts(group, there))
    kept = tuple(size for group in groups for size in ((group.outer, group.kept) if group.outer > 1 else (group.kept,)))
    if split == kept:
        return [], [], 0
    steps = [] if split == port else [Step("reshape", port, split)]
    steps.append(Step("cut", split, kept))
    tiles = all(
        there == group.kept or (there // group.outer == _padded(group.kept) and len(port) - place <= _MATRIX)
        for place, (group, there) in enumerate(zip(groups, port, strict=True))
    )
    inside = any(group.outer > 1 for group in groups)
    words = _TILE_WORDS if tiles else f"drop padding {_cut_words(split, kept)}"
    return steps, [f"{words}{' inside the flattened rows' if inside else ''}"], 2 + 2 * inside + 2 * (not tiles)


def _parts(group: _Group, there: int) -> Shape:
    return (group.outer, there // group.outer) if group.outer > 1 else (there,)


def _cut_words(before: Shape, after: Shape) -> str:
    return f"from {list(before)} to {list(after)}"


def _with_ones(golden: Shape, moved: Shape) -> Shape:
    """The order of all golden dimensions: those of size 1 stay in their places."""
    following = iter(moved)
    return tuple(place if size == 1 else next(following) for place, size in enumerate(golden))


def _disorder(order: Shape) -> int:
    """0 for the orders that ports use; 1 for any other."""
    return 0 if order in _CHANNELS_LAST or _swapped(order) is not None else 1


def _swapped(order: Shape) -> tuple[int, int] | None:
    """The two dimensions that are exchanged, if nothing else is."""
    moved = [place for place, source in enumerate(order) if place != source]
    return (moved[0], moved[1]) if len(moved) == _MATRIX else None


def _permute_words(order: Shape) -> str:
    if order in _CHANNELS_LAST:
        return f"permute {_CHANNELS_LAST[order]}"
    swapped = _swapped(order)
    if swapped is not None:
        return "transpose" if len(order) == _MATRIX else f"transpose dimensions {swapped[0]} and {swapped[1]}"
    return f"permute{tuple(order.index(place) for place in range(len(order)))}"


def _unflatten_words(before: Shape, order: Shape, groups: Sequence[_Group], moved: Shape) -> str:
    if order == _NHWC and tuple(moved[place] for place in groups[-1].members) == (1,):
        return "unflatten [1, 1, N*H*W, C]"
    return f"reshape to {list(before)}"


def _ones_words(there: Shape, wanted: Shape) -> str:
    """A reshape that only adds or removes dimensions of size 1."""
    extra = len(there) - len(wanted)
    if extra > 0 and there == (*(1,) * extra, *wanted):
        return "squeeze leading dimensions"
    if extra < 0 and wanted == (*(1,) * -extra, *there):
        return "unsqueeze leading dimensions"
    return f"reshape to {list(wanted)}"


def _split(golden: Shape, port: Shape) -> Iterator[Layout]:
    """Layouts in which a golden dimension is several of the port, such as heads: [B, S, H*D] as [B, H, S, D]."""
    large = [place for place, size in enumerate(port) if size != 1]
    wanted = tuple(size for size in golden if size != 1)
    if len(large) <= len(wanted) or not wanted:
        return
    for order in _orders(len(large)):
        moved = tuple(large[place] for place in order)
        for kept in _kept_sizes(wanted, moved, port):
            yield _split_layout(golden, port, moved, kept)


def _kept_sizes(wanted: Shape, moved: Shape, port: Shape) -> Iterator[dict[int, int]]:
    """Sizes of the port's dimensions without padding, so that consecutive ones multiply to the golden sizes."""
    if not wanted:
        if not moved:
            yield {}
        return
    for count in range(1, len(moved) - len(wanted) + 2):
        for sizes in _factors(wanted[0], moved[:count], port):
            for rest in _kept_sizes(wanted[1:], moved[count:], port):
                yield sizes | rest


def _factors(whole: int, dimensions: Shape, port: Shape) -> Iterator[dict[int, int]]:
    if not dimensions:
        if whole == 1:
            yield {}
        return
    first, there = dimensions[0], port[dimensions[0]]
    tiled = first >= len(port) - _MATRIX and there % TILE == 0
    for size in (there, *(range(there - 1, there - TILE, -1) if tiled else ())):
        if whole % size == 0:
            for rest in _factors(whole // size, dimensions[1:], port):
                yield {first: size} | rest


def _split_layout(golden: Shape, port: Shape, moved: Shape, kept: dict[int, int]) -> Layout:
    steps: list[Step] = []
    words: list[str] = []
    cost = 2
    sizes = tuple(kept.get(place, size) for place, size in enumerate(port))
    if sizes != port:
        steps.append(Step("cut", port, sizes))
        words.append("drop tile padding")
        cost += 2
    order = _with_ones(port, moved)
    if list(order) != sorted(order):
        steps.append(Step("permute", sizes, order))
        words.append(f"permute{order}")
        cost += 3 + (_swapped(order) is None)
    shape = tuple(sizes[place] for place in order)
    if shape != golden:
        steps.append(Step("reshape", shape, golden))
        words.append(f"reshape to {list(golden)}")
    return Layout(tuple(steps), tuple(words), cost)


# --- Which layout the values have ---


@dataclass(frozen=True, slots=True)
class Sample:
    """Positions of a golden tensor and its values there: the largest, and others spread evenly."""

    index: Positions
    values: Numbers


def sample_of(golden: Tensor) -> Sample:
    """The same positions every time."""
    count = golden.numel()
    if count <= _SAMPLE:
        flat = np.arange(count)
    else:
        spread = np.random.default_rng(0).integers(count, size=_SAMPLE // 2)
        flat_golden = golden.detach().reshape(-1)
        magnitude = (flat_golden if golden.is_complex() else flat_golden.float()).abs().float().nan_to_num(0)
        top = torch.topk(magnitude, _SAMPLE // 2, sorted=False).indices.numpy()
        flat = np.unique(np.concatenate((spread, top)))
    index = np.unravel_index(flat, tuple(golden.shape)) if golden.dim() else ()
    return Sample(index, _values_at(golden, index))


def _values_at(tensor: Tensor, index: Positions) -> Numbers:
    return _picked(
        tensor, np.ravel_multi_index(index, tuple(tensor.shape)) if tensor.dim() else np.zeros(1, dtype=np.int64)
    )


def _picked(tensor: Tensor, flat: npt.NDArray[np.int64]) -> Numbers:
    picked = tensor.detach().reshape(-1)[torch.from_numpy(flat)]
    wide = torch.complex128 if picked.is_complex() else torch.float64
    return np.asarray(picked.to(wide).numpy())


def distance(expected: Numbers, actual: Numbers) -> float:
    """0 for equal values, about 1 for unrelated ones; a factor or an offset does not hide that values belong together.

    Whether values are right is for the judge; this only says which layout, or which tensor, they belong to.
    """
    finite = np.isfinite(expected) & np.isfinite(actual)
    same = finite | (np.isnan(expected) & np.isnan(actual)) | (expected == actual)
    misplaced = float((~same).mean()) if same.size else 0.0
    return misplaced + _finite_distance(expected[finite], actual[finite])


def _finite_distance(expected: Numbers, actual: Numbers) -> float:
    if not expected.size:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        length, apart = float(np.linalg.norm(expected)), float(np.linalg.norm(actual - expected))
        relative = apart / length if length else float(apart > 0)
        left, right = expected - expected.mean(), actual - actual.mean()
        both = float(np.linalg.norm(left)) * float(np.linalg.norm(right))
        cosine = float(np.vdot(left, right).real) / both if both else 0.0
    if expected.size < _ENOUGH:
        return relative if isfinite(relative) else 1.0
    unexplained = sqrt(max(0.0, 1 - cosine * cosine)) if cosine > 0 else 1.0
    return min(relative, unexplained) if isfinite(relative) else 1.0


def score(sample: Sample, tensor: Tensor, layout: Layout | None) -> float:
    """How far a port's tensor in a layout is from the sample; None is the identity."""
    index = sample.index if layout is None else layout.sources(sample.index)
    return distance(sample.values, _values_at(tensor, index))


@dataclass(frozen=True, slots=True)
class Found:
    """A layout that fits the values of two tensors."""

    layout: Layout
    score: float

    @property
    def is_plausible(self) -> bool:
        """Whether the values belong together in this layout, right or wrong."""
        return self.score < _PLAUSIBLE

    def is_clearly_better(self, as_it_is: float) -> bool:
        """Whether another order of dimensions of the same shape is certain: it is far closer than the given order."""
        return self.score * _CLEARLY <= as_it_is


def likely_layouts(golden: Tensor, candidate: Tensor, sample: Sample | None = None) -> tuple[Found, ...]:
    """The few layouts that fit the values best, the simplest of equally good ones first; none for an empty tensor."""
    if not golden.numel() or not candidate.numel():
        return ()
    layouts = possible_layouts(tuple(golden.shape), tuple(candidate.shape))
    if not layouts:
        return ()
    sample = sample_of(golden) if sample is None else sample
    candidate = candidate.contiguous()
    left = _first_look(golden, candidate, layouts)
    scores = [score(sample, candidate, layout) for layout in left]
    best = min(scores)
    near = [
        Found(layout, value)
        for layout, value in zip(left, scores, strict=True)
        if value <= 2 * best + 1e-9  # as good as the best: the simplest of them is the explanation
    ]
    return tuple(near[:_TRIED])


@lru_cache(maxsize=256)
def _first_positions(golden: Shape, port: Shape) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A few positions of a golden shape, and for each layout those of the port: they do not depend on values."""
    count = prod(golden)
    flat = np.arange(count) if count <= _FIRST_LOOK else np.random.default_rng(0).integers(count, size=_FIRST_LOOK)
    index = np.unravel_index(flat, golden) if golden else ()
    sources = [layout.sources(index) for layout in possible_layouts(golden, port)]
    return flat, np.stack([np.ravel_multi_index(one, port) if port else np.zeros_like(flat) for one in sources])


def _first_look(golden: Tensor, candidate: Tensor, layouts: Sequence[Layout]) -> list[Layout]:
    """Those that a few elements do not rule out."""
    flat, sources = _first_positions(tuple(golden.shape), tuple(candidate.shape))
    expected = _picked(golden, flat)
    found = _picked(candidate, sources.reshape(-1)).reshape(sources.shape)
    scores = [distance(expected, actual) for actual in found]
    limit = 4 * min(scores) + 0.1
    return [layout for layout, value in zip(layouts, scores, strict=True) if value <= limit]


def largest_values(tensor: Tensor) -> Numbers:
    """The largest magnitudes, sorted: equal for equal values in any layout, unless what pads them is larger."""
    flat = tensor.detach().reshape(-1)
    magnitude = (flat if flat.is_complex() else flat.float()).abs().double().nan_to_num(0, posinf=0)
    return np.asarray(torch.topk(magnitude, min(LARGEST, flat.numel())).values.numpy())


def closest_layout(golden: Tensor, candidate: Tensor, sample: Sample | None = None) -> Found | None:
    """The layout that fits best; the identity where it is as good as any. None where no layout gives the shape."""
    if not golden.numel() or not candidate.numel():
        return None
    sample = sample_of(golden) if sample is None else sample
    if golden.shape == candidate.shape:
        as_it_is = Found(_IDENTITY, score(sample, candidate.contiguous(), None))
        if as_it_is.score <= _EQUAL:
            return as_it_is
        found = likely_layouts(golden, candidate, sample)
        return found[0] if found and found[0].is_clearly_better(as_it_is.score) else as_it_is
    found = likely_layouts(golden, candidate, sample)
    return found[0] if found else None


def explain(golden: Tensor, candidate: Tensor, passes: Passes) -> str:
    """The layout that would make a wrong candidate correct, as text; "" when none of the known ones does."""
    for found in layouts_to_try(golden, candidate):
        if passes(golden, found.layout.undo(candidate)):
            return f"matches after: {', '.join(found.layout.words)}"
    return ""


def layouts_to_try(golden: Tensor, candidate: Tensor) -> tuple[Found, ...]:
    """The likely layouts of a tensor that is wrong as it is; of the same shape only one that is certain."""
    found = likely_layouts(golden, candidate)
    if golden.shape != candidate.shape or not found:
        return found
    as_it_is = score(sample_of(golden), candidate.contiguous(), None)
    return tuple(one for one in found if one.is_clearly_better(as_it_is))


def nan_in_padding(candidate: Tensor, arranged: Tensor) -> int:
    """NaN that are in the padding alone, which is not compared."""
    if not candidate.is_floating_point():
        return 0
    return int(candidate.float().isnan().sum()) - int(arranged.float().isnan().sum())
