"""Projections that a port fuses or splits: query, key and value as one tensor, gate and up as one tensor.

The parts stand one behind the other, or take turns for each head or group of heads: `[q0 k0 v0 q1 k1 v1 ...]`. Which of
them is the case is decided by the values, as for any other layout.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

import torch
from torch import Tensor

from torchstone.reference.layouts import Layout, closest_layout
from torchstone.units import many

_MAX_ELEMENTS = 1 << 24  # each way to interleave costs a copy of the whole tensor
_MAX_GROUPS = 64

# --- Names ---

_FAMILIES: tuple[tuple[tuple[frozenset[str], ...], frozenset[str]], ...] = (
    (
        (
            frozenset({"q", "query", "q_proj", "wq", "to_q", "q_lin", "query_proj"}),
            frozenset({"k", "key", "k_proj", "wk", "to_k", "k_lin", "key_proj"}),
            frozenset({"v", "value", "v_proj", "wv", "to_v", "v_lin", "value_proj"}),
        ),
        frozenset({"qkv", "qkv_proj", "wqkv", "to_qkv", "query_key_value", "c_attn", "in_proj", "fused_qkv", "xqkv"}),
    ),
    (
        (frozenset({"gate_proj", "gate", "w1"}), frozenset({"up_proj", "up", "w3"})),
        frozenset({"gate_up_proj", "gate_up", "w13"}),
    ),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a name of a projection stands: the names of its parts have the same path and the same family."""

    path: tuple[str, ...]  # with "" for the projection
    family: int
    part: int | None  # None: all parts in one


def place_of(name: str) -> Place | None:
    """The projection that a tensor name is about; None for any other name."""
    words = [word for word in re.split(r"[./]", name) if word not in ("modules", "outputs", "output")]
    for at in range(len(words) - 1, -1, -1):
        for family, (parts, fused) in enumerate(_FAMILIES):
            word = words[at].lower()
            part = next((number for number, known in enumerate(parts) if word in known), None)
            if part is not None or word in fused:
                return Place((*words[:at], "", *words[at + 1 :]), family, part)
    return None


def whole_parts(names: Sequence[str]) -> dict[tuple[tuple[str, ...], int], tuple[str, ...]]:
    """The names of all parts of a projection, by path and family; a projection with a part missing is not listed."""
    found: dict[tuple[tuple[str, ...], int], dict[int, str]] = {}
    for name in names:
        place = place_of(name)
        if place is not None and place.part is not None:
            found.setdefault((place.path, place.family), {}).setdefault(place.part, name)
    return {
        key: tuple(parts[number] for number in sorted(parts))
        for key, parts in found.items()
        if len(parts) == len(_FAMILIES[key[1]][0])
    }


def same_projection(fused: str, key: tuple[tuple[str, ...], int]) -> bool:
    """Whether a name is that of all parts of a projection in one."""
    place = place_of(fused)
    if place is None or place.part is not None or place.family != key[1]:
        return False
    return _bare(place.path) == _bare(key[0])


def _bare(path: tuple[str, ...]) -> tuple[str, ...]:
    """A path without what differs between a module's output and a tensor of its own name."""
    return tuple(word for word in path if word)


# --- Ways to fuse ---


@dataclass(frozen=True, slots=True)
class Way:
    """Along which dimension the parts are joined, and in how many turns."""

    sizes: tuple[int, ...]
    dimension: int
    groups: int

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """All parts as one tensor."""
        turns = [part.movedim(self.dimension, -1).unflatten(-1, (self.groups, -1)) for part in parts]
        return torch.cat(turns, dim=-1).flatten(-2).movedim(-1, self.dimension)

    def separate(self, whole: Tensor) -> tuple[Tensor, ...]:
        """One tensor as its parts."""
        turns = whole.movedim(self.dimension, -1).unflatten(-1, (self.groups, -1))
        parts = turns.split([size // self.groups for size in self.sizes], dim=-1)
        return tuple(part.flatten(-2).movedim(-1, self.dimension) for part in parts)

    def words(self, verb: str) -> str:
        """As a step of a layout."""
        parts = "q, k, v" if len(self.sizes) == 3 else f"{len(self.sizes)} parts"  # noqa: PLR2004 - query, key, value
        turns = f", interleaved in {many(self.groups, 'group')}" if self.groups > 1 else ""
        along = f" along dimension {self.dimension}" if self.dimension != -1 else ""
        return f"{verb} {parts}{along}{turns}"


def _ways(shapes: Sequence[Sequence[int]], elements: int) -> Iterator[Way]:
    """Simplest first: joined along the last dimension without turns."""
    rank = len(shapes[0])
    if any(len(shape) != rank for shape in shapes):
        return
    for dimension in (-1, *range(rank - 1)):
        sizes = tuple(shape[dimension] for shape in shapes)
        rest = {tuple(size for place, size in enumerate(shape) if place != dimension % rank) for shape in shapes}
        if len(rest) > 1:
            continue
        most = gcd(*sizes)
        turns = [count for count in range(1, most + 1) if most % count == 0]
        yield from (Way(sizes, dimension, count) for count in _bounded(turns, elements))


def _bounded(turns: list[int], elements: int) -> list[int]:
    return turns[:1] if elements > _MAX_ELEMENTS else turns[:_MAX_GROUPS]


@dataclass(frozen=True, slots=True)
class Refit:
    """Tensors of a port as the golden tensors they belong to."""

    tensors: Mapping[str, Tensor]  # by golden name
    words: tuple[str, ...]
    score: float


def split_to(golden: Mapping[str, Tensor], port: Tensor) -> Refit | None:
    """One tensor of a port as the golden parts; None where no layout gives their shapes."""
    parts = list(golden.values())
    best: tuple[float, Way, Layout] | None = None
    for way in _ways([tuple(part.shape) for part in parts], sum(part.numel() for part in parts)):
        found = closest_layout(way.join(parts), port)
        if found is not None and (best is None or found.score * 2 < best[0]):
            best = (found.score, way, found.layout)
    if best is None:
        return None
    value, way, layout = best
    pieces = way.separate(layout.undo(port))
    return Refit(dict(zip(golden, pieces, strict=True)), (*layout.words, way.words("split")), value)


def merge_to(name: str, golden: Tensor, port: Sequence[Tensor]) -> Refit | None:
    """Parts of a port as one golden tensor; None where no layout gives its shape."""
    best: tuple[float, Way, tuple[Layout, ...]] | None = None
    for way in _ways_to_merge(golden, port):
        found = [closest_layout(part, own) for part, own in zip(way.separate(golden), port, strict=True)]
        known = [one for one in found if one is not None]
        if len(known) < len(found):
            continue
        value = max(one.score for one in known)
        if best is None or value * 2 < best[0]:
            best = (value, way, tuple(one.layout for one in known))
    if best is None:
        return None
    value, way, layouts = best
    merged = way.join([layout.undo(part) for layout, part in zip(layouts, port, strict=True)])
    words = tuple(dict.fromkeys(word for layout in layouts for word in layout.words))
    return Refit({name: merged}, (*words, way.words("merge")), value)


def _ways_to_merge(golden: Tensor, port: Sequence[Tensor]) -> Iterator[Way]:
    """Sizes of the parts: as the port's elements are to each other, or equal ones where those are padded."""
    everything = sum(part.numel() for part in port)
    for dimension in (-1, *range(golden.dim() - 1)):
        whole = golden.shape[dimension]
        shares = [tuple(whole * part.numel() // everything for part in port), (whole // len(port),) * len(port)]
        for sizes in dict.fromkeys(shares):
            if sum(sizes) != whole or 0 in sizes:
                continue
            most = gcd(*sizes)
            turns = [count for count in range(1, most + 1) if most % count == 0]
            yield from (Way(sizes, dimension, count) for count in _bounded(turns, golden.numel()))
