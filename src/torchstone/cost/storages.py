"""Every piece of memory in a trace: how large it is, what it holds, and whether it outlives the run."""

from collections.abc import Mapping

from torchstone.cost.boundary_tensors import Ends, find_ends
from torchstone.cost.shorten import MIDDLE, Short
from torchstone.record.base import Record
from torchstone.record.cost import Category
from torchstone.record.trace import Trace

_WEIGHTS, _KV_CACHE = Category.WEIGHTS, Category.KV_CACHE


class Storages(Record, frozen=True, kw_only=True):
    """The memory of a trace, by storage number."""

    sizes: list[int]
    categories: list[Category]
    names: dict[int, str]  # those that were there before the first op
    kept: frozenset[int]  # those that the model gives back, and the gradients of its parameters
    gradients: frozenset[int]
    cache_inputs: frozenset[int]  # caches that came in
    replaced: frozenset[int]  # weights in whose place the model put others
    unknown: int  # tensors whose size is not known; they count as nothing
    read: list[tuple[int, ...]]  # by op call: where its inputs lie
    made: list[tuple[int, ...]]  # by op call: where its outputs lie
    times: dict[int, int] = {}  # those that stand for several pieces, and for how many

    def whole_size(self, storage: int) -> int:
        """Bytes of a piece and of all those it stands for."""
        return self.sizes[storage] * self.times.get(storage, 1)

    def by_category(self, sizes: Mapping[int, int]) -> dict[Category, int]:
        """One number for each of some storages, summed by what the storages hold."""
        weights = kv_cache = activations = 0
        for storage, size in sizes.items():
            category = self.categories[storage]
            if category is _WEIGHTS:
                weights += size
            elif category is _KV_CACHE:
                kv_cache += size
            else:
                activations += size
        return {_WEIGHTS: weights, _KV_CACHE: kv_cache, Category.ACTIVATIONS: activations}


def find_storages(trace: Trace) -> Storages:
    """Look at every tensor of a trace once."""
    return storages_of(Short(trace=trace, ends=find_ends(trace)))


def storages_of(short: Short) -> Storages:
    """The memory of a trace that may be a short one."""
    trace, ends = short.trace, short.ends
    left_out = short.storages_left_out()
    sizes = _sizes(trace, ends)
    for storage in left_out:
        sizes[storage] = 0
    categories = [Category.ACTIVATIONS] * len(sizes)
    for storage in ends.caches_out | ends.caches_in:
        categories[storage] = _KV_CACHE
    for storage in ends.weights:
        categories[storage] = _WEIGHTS
    place = trace.tensors.storage_of.__getitem__
    return Storages(
        sizes=sizes,
        categories=categories,
        names={storage: name for storage, name in ends.names.items() if storage not in left_out},
        kept=ends.kept,
        gradients=ends.gradients,
        cache_inputs=ends.caches_in - left_out,
        replaced=ends.replaced - left_out,
        unknown=_unknown(short),
        read=[tuple(map(place, tensors)) for tensors in trace.ops.inputs],
        made=[tuple(map(place, tensors)) for tensors in trace.ops.outputs],
        times=short.times_of_storages(),
    )


def _sizes(trace: Trace, ends: Ends) -> list[int]:
    """How far the tensors of each storage reach."""
    table = trace.tensors
    extents = [extent or 0 for extent in ends.extents]
    sizes = [0] * (max(table.storage_of, default=-1) + 1)
    for spec, storage in zip(table.spec_of, table.storage_of, strict=True):
        if (extent := extents[spec]) > sizes[storage]:
            sizes[storage] = extent
    return sizes


def _unknown(short: Short) -> int:
    unsized = {number for number, extent in enumerate(short.ends.extents) if extent is None}
    if not unsized:
        return 0
    spec_of = short.trace.tensors.spec_of
    left_out = sum(
        run.left_out * sum(spec_of[tensor] in unsized for tensor in run.tensors.of(MIDDLE)) for run in short.runs
    )
    return sum(spec in unsized for spec in spec_of) + left_out
