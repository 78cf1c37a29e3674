"""What the devices have of a trace that is split: what is known while it is followed, and the parts of each.

The device with most has heads of attention where they are known, else rows or columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from torchstone.cost.storages import Storages
from torchstone.cost.tiles import used_storages, weights_of
from torchstone.record.cost import Category
from torchstone.record.trace import Trace

ALL_REDUCE = "all-reduce"
ALL_GATHER = "all-gather"
CACHE_RANK = 4  # batch, heads, tokens, width of a head
_LINEAR_LAYERS = (({"in_features", "out_features"}, 0), ({"nf", "nx"}, 1))  # and the dimension of their columns


class Exchange(NamedTuple):
    """Data that devices must exchange, and the op and module it comes from."""

    kind: str
    op: str
    module: str
    size: int


class Heads(NamedTuple):
    """Heads of attention, and the columns of one."""

    number: int
    width: int


class Part(NamedTuple):
    """Columns, rows or heads: all of them, and those of the device that has most."""

    whole: int
    most: int

    @staticmethod
    def of(whole: int, devices: int) -> "Part":
        """None is divided: 100 columns on three devices are 34 on two of them; of too few heads, each has one."""
        return Part(whole, ceil(whole / devices))


@dataclass(slots=True, kw_only=True)
class Split:
    """What is known while the trace is followed."""

    split: dict[int, int] = field(default_factory=dict)  # storage of which each device holds a part -> whole width
    partial: dict[int, Exchange] = field(default_factory=dict)  # storage of sums to be added up -> how
    period: dict[int, int] = field(default_factory=dict)  # split storage -> elements after which the parts repeat
    split_weights: set[int] = field(default_factory=set)
    looked_up: set[int] = field(default_factory=set)  # tables that every device has whole: embeddings
    origins: dict[int, frozenset[int]] = field(default_factory=dict)  # computed from weights alone -> these weights
    made_from: dict[int, frozenset[int]] = field(default_factory=dict)  # split storage -> weights it is computed with
    projected: dict[frozenset[int], int] = field(default_factory=dict)  # weights split by columns -> bytes they give
    gathered: set[int] = field(default_factory=set)  # split storage of which each device has also seen the whole
    columns: dict[int, int] = field(default_factory=dict)  # weight that is split by columns -> how many it has
    rows: dict[int, frozenset[int]] = field(default_factory=dict)  # weight that is split by rows -> weights before it
    row_counts: dict[int, int] = field(default_factory=dict)  # weight that is split by rows -> how many it has
    queries: dict[int, int] = field(default_factory=dict)  # split storage that attention reads or makes -> heads
    repeated: dict[int, int] = field(default_factory=dict)  # keys or values that attention reads -> heads
    by_heads: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)  # storage -> as what of rank 4 it is seen
    left_whole: dict[str, int] = field(default_factory=dict)  # op that reads weights and is not split -> calls
    parts: dict[int, Part] = field(default_factory=dict)  # split storage or weight -> that of the device with most
    kept_whole: frozenset[int] = frozenset()  # weights that every device has, such as those of the only head of keys
    meets_whole: bool = False  # whether data that every device has seen whole meets other whole data
    flops: float = 0.0
    moved: float = 0.0
    seconds: float = 0.0
    exchanges: dict[Exchange, int] = field(default_factory=dict)

    def split_like(self, weight: int, other: int) -> None:
        """Split a weight as another one is, of which it has the form."""
        self.split_weights.add(weight)
        if other in self.parts:
            self.parts[weight] = self.parts[other]
        for counts in (self.columns, self.row_counts):
            if other in counts:
                counts[weight] = counts[other]

    def put_period(self, storage: int, period: int | None) -> None:
        """Note after how many elements of a storage the parts repeat; None: not known."""
        if period is None:
            self.period.pop(storage, None)
        else:
            self.period[storage] = period

    def exchange(self, kind: str, op: str, module: str, size: int) -> None:
        """Count an exchange between the devices."""
        key = Exchange(kind, op, module, size)
        self.exchanges[key] = self.exchanges.get(key, 0) + 1

    def add_up(self, storages: Sequence[int]) -> None:
        """Make whole what is still partial."""
        for storage in dict.fromkeys(storages):
            if storage in self.partial:
                self.exchange(*self.partial.pop(storage))

    def unpacks(self, weights: set[int], inputs: Sequence[int], outputs: Sequence[int]) -> bool:
        """Whether an op reads weights alone: what it makes, such as a cast or scaled weight, then stands for them."""
        if not inputs or not all(storage in weights or storage in self.origins for storage in inputs):
            return False
        self.origins.update(dict.fromkeys(set(outputs) - weights, frozenset(self.multiplied(weights, inputs))))
        return True

    def multiplied(self, weights: set[int], inputs: Sequence[int]) -> set[int]:
        """The weights among these, and what stands for weights together with those."""
        made = [storage for storage in inputs if storage in self.origins]
        return weights.intersection(inputs).union(made, *(self.origins[storage] for storage in made))

    def weights_of(self, storages: Sequence[int]) -> frozenset[int]:
        """The weights that split data among these is computed with."""
        return frozenset().union(*(self.made_from.get(storage, frozenset()) for storage in storages))

    def gather(self, storages: Sequence[int], op: str, module: str, size: int, *, parts_stay: bool) -> None:
        """Exchange what was projected into these: every device sees all of it and of what was computed from it."""
        weights = self.weights_of(storages)
        self.exchange(ALL_GATHER, op, module, self.projected.get(weights, size))
        same = {*storages, *(one for one, source in self.made_from.items() if source == weights)}
        if parts_stay:
            self.gathered |= same
            return
        for storage in same:  # every device goes on with all of it
            self.split.pop(storage, None)
            self.made_from.pop(storage, None)

    def is_gathered(self, storages: Sequence[int]) -> bool:
        """Whether every device has all of the split data among these."""
        return all(storage in self.gathered for storage in storages if storage in self.split)

    def share(self, storages: Sequence[int], devices: int) -> float:
        """By how much the part of the device with most is less than the whole."""
        part = next((self.parts[storage] for storage in storages if storage in self.parts), None)
        return devices if part is None else part.whole / part.most

    def width(self, storages: Sequence[int]) -> int:
        """The whole width of split data among these; 0 where none is split."""
        return max((self.split.get(storage, 0) for storage in storages), default=0)


def parts_of(trace: Trace, storages: Storages, state: Split, devices: int) -> dict[int, Part]:
    """What the device with most has of all that is split: heads where they are known, else rows or columns."""
    parts = _heads(trace, storages, state, devices)
    for weight, count in state.row_counts.items():
        part = parts.setdefault(weight, Part.of(count, devices))
        for source in state.rows[weight]:
            columns = state.columns.get(source, 0)
            if columns and columns % count == 0:  # two of them in one, such as gate and up, are split one by one
                parts.setdefault(source, Part(columns, columns * part.most // part.whole))
    for storage, heads in state.repeated.items():
        parts.setdefault(storage, Part.of(heads, devices))
    for storage, width in state.columns.items():
        parts.setdefault(storage, Part.of(max(width, 1), devices))
    for storage, width in state.split.items():
        sources = {parts[one] for one in state.made_from.get(storage, ()) if one in parts}
        part = sources.pop() if len(sources) == 1 else Part.of(max(width, 1), devices)
        parts.setdefault(storage, part)
    return parts


def _heads(trace: Trace, storages: Storages, state: Split, devices: int) -> dict[int, Part]:
    """The heads of each split cache and of what attention asks with and gives, and of the weights around them."""
    found: dict[int, int] = dict(state.queries)
    widths: dict[int, int] = {storage: state.split[storage] for storage in found if storage in state.split}
    caches = _heads_of_caches(trace, storages, state)
    found |= {storage: one.number for storage, one in caches.items()}
    widths |= {storage: one.number * one.width for storage, one in caches.items()}
    for storage, heads in list(found.items()):
        for weight in state.made_from.get(storage, ()):
            if widths.get(storage) == state.columns.get(weight):
                found[weight] = heads
    fused = _fused_projections(state, caches)
    found |= {weight: queries or keys for weight, (queries, keys, _) in fused.items()}
    for weight, sources in state.rows.items():  # the projection after attention reads what all heads of queries give
        known = [source for source in sources if source in found]
        if known:
            found[weight] = max(_heads_before(state, weight, source, found[source]) for source in known)
    asking = _asking(state, found, caches, fused)
    parts = {
        storage: Part(count, _most_keys(asking.get(storage, count), count, devices)) for storage, count in found.items()
    }
    for weight, (queries, keys, width) in fused.items():
        most_keys = _most_keys(asking.get(weight, queries or keys), keys, devices)
        parts[weight] = Part(state.columns[weight], (ceil(queries / devices) + 2 * most_keys) * width)
    return parts


def _asking(
    state: Split, found: Mapping[int, int], caches: Mapping[int, Heads], fused: Mapping[int, tuple[int, int, int]]
) -> dict[int, int]:
    """How many heads of queries share the heads of keys that a weight gives or a cache keeps."""
    asking = {weight: queries for weight, (queries, _, _) in fused.items() if queries}
    for weight, sources in state.rows.items():
        for source in sources & found.keys():
            keys = fused[source][1] if source in fused else found[source]
            if found.get(weight, 0) % keys == 0:
                asking[source] = max(found.get(weight, 0), asking.get(source, keys))
    for storage in caches:
        known = [asking[weight] for weight in state.made_from.get(storage, ()) if weight in asking]
        if known:
            asking[storage] = max(known)
    return asking


def _most_keys(queries: int, keys: int, devices: int) -> int:
    """The heads of keys on the device with most, where none has more heads of queries than it must.

    A device has heads of queries that follow each other, and the heads of keys that these ask for: of 32 and 8, each of
    three devices has up to 11 of queries, and one of them 4 of keys. Devices that take as many as they can are fewest.
    """
    each, shared = ceil(queries / devices), max(queries // keys, 1)
    for most in range(ceil(keys / devices), keys):
        placed = used = 0
        while placed < queries:
            placed = min(placed + each, (placed // shared + most) * shared)
            used += 1
        if used <= devices:
            return most
    return keys


def _heads_before(state: Split, weight: int, source: int, heads: int) -> int:
    """The heads that a projection reads: without a kernel for attention, those of keys tell how wide a head is."""
    columns, rows = state.columns.get(source, 0), state.row_counts[weight]
    if state.queries or not columns or rows * heads % columns:
        return heads
    return max(heads, rows * heads // columns)


def _heads_of_caches(trace: Trace, storages: Storages, state: Split) -> dict[int, Heads]:
    """The heads of each split cache, as it was made: later views may be transposed."""
    table = trace.tensors
    caches: dict[int, Heads] = {}
    for spec, storage in zip(table.spec_of, table.storage_of, strict=True):
        shape, stride = table.specs[spec].shape, table.specs[spec].stride
        if storage in caches or len(shape) != CACHE_RANK or (stride is not None and stride[1] == 0):
            continue  # the last: one head that is seen as many, as the rotary key of latent attention is
        if storages.categories[storage] is Category.KV_CACHE and storage in state.split:
            caches[storage] = Heads(shape[1], shape[3])
    return caches


def _fused_projections(state: Split, caches: Mapping[int, Heads]) -> dict[int, tuple[int, int, int]]:
    """Weights that give queries, keys and values, or the last two: heads of queries, of keys, and their width."""
    kept: dict[int, set[Heads]] = {}
    for storage, heads in caches.items():
        for weight in state.made_from.get(storage, frozenset()) & state.columns.keys():
            kept.setdefault(weight, set()).add(heads)
    fused: dict[int, tuple[int, int, int]] = {}
    for weight, forms in kept.items():
        (count, width), *others = forms
        queries = state.columns[weight] // width - 2 * count
        if not others and state.columns[weight] % width == 0 and queries >= 0 and queries % count == 0:
            fused[weight] = (queries, count, width)
    return fused


def split_unread(trace: Trace, storages: Storages, state: Split, devices: int) -> int:
    """Split the weights of linear layers that no op reads, and count them: a server splits its encoder, too.

    One with the name and size of another that is read is split as that one is, or left whole with it.
    """
    table, read = trace.tensors, used_storages(trace)
    twins = {(_own_name(name), storages.sizes[one]): one for one, name in storages.names.items() if one in read}
    linear = [(weights_of(trace, names), dim) for names, dim in _LINEAR_LAYERS]
    unread = {
        table.storage_of[one.tensor]: (one.name, table[one.tensor].spec.shape)
        for one in table.external
        if one.kind == "parameter" and table.storage_of[one.tensor] not in read
    }
    before = len(state.split_weights)
    for storage, (name, shape) in unread.items():
        twin = twins.get((_own_name(name), storages.sizes[storage]))
        dim = next((dim for found, dim in linear if storage in found), None)
        if twin is not None:
            if twin in state.split_weights - state.looked_up:
                state.split_like(storage, twin)
        elif dim is not None and len(shape) > 1:
            state.split_weights.add(storage)
            state.columns[storage] = shape[dim]
            state.parts[storage] = Part.of(shape[dim], devices)
    return len(state.split_weights) - before


def _own_name(path: str) -> str:
    """The last two parts of the path of a parameter: its module and its attribute."""
    return ".".join(path.split(".")[-2:])
