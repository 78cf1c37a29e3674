"""Traffic with fusion (pointwise chains and attention stay on chip), and the compulsory traffic that nothing avoids."""

from collections.abc import Mapping, Sequence

import msgspec

from torchstone.cost.cache_writes import new_bytes_in_place, new_cache_bytes
from torchstone.cost.shorten import FIRST, LAST, MIDDLE, Run, Short
from torchstone.cost.storages import Storages
from torchstone.record.base import Record
from torchstone.record.cost import Category, Kind, Traffic
from torchstone.record.trace import Trace

# Traffic of a compiler that fuses: pointwise chains, and attention that the model writes out, stay on chip. Pointwise
# ops, copies, fills, reductions and normalisations that hand data to each other form one kernel. A kernel reads what
# comes from outside once and writes what an op outside needs. Written-out attention (matmul, scale, mask, softmax,
# matmul) is one kernel, so its scores never leave the chip. Other ops are kernels of their own.


_FUSIBLE = frozenset(
    (Kind.POINTWISE, Kind.COPY, Kind.FACTORY, Kind.REDUCTION, Kind.NORMALISATION, Kind.RANDOM, Kind.OPTIMISER)
)
_SOFTMAX = frozenset(("aten._softmax.default", "aten._safe_softmax.default"))
_NO_WRITER = -1


class PricedSignature(Record, frozen=True, kw_only=True):
    """What fusion must know of a signature."""

    kind: Kind
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    @property
    def moves_something(self) -> bool:
        """Views are free, and of what has no price nothing is known."""
        return self.kind is not Kind.VIEW and self.kind is not Kind.UNPRICED


def fused_traffic(short: Short, priced: Sequence[PricedSignature], storages: Storages) -> Traffic | None:
    """Bytes that cross the border of a kernel; None where blocks that are left out may form other kernels."""
    trace = short.trace
    producers = _producers(trace, priced, storages)
    grouping = _Groups(trace, priced, producers)
    kernels = _Kernels(producers=producers, groups=grouping.found())
    if not all(_same_in_every_block(kernels, grouping.levels, run) for run in short.runs):
        return None
    growing = _growing(kernels, short, storages)
    if growing is None:
        return None
    return _count(trace, priced, storages, kernels, _Times(short.times_of_rows(), growing))


class _Kernels(Record, frozen=True, kw_only=True):
    producers: list[tuple[int, ...]]  # by call, for each input: the call that last wrote it
    groups: list[int]  # by call: the kernel it is in, named by its first call


def _same_in_every_block(kernels: _Kernels, levels: Sequence[int], run: Run) -> bool:
    """Whether every block left out is grouped like the one that stands for it.

    From block to block each level either rises by the same step or stays. It goes on like that where a level that
    rises is not decided by one that stays, and one that stays has nothing to do with those that rise.
    """
    middle, last = run.ops.of(MIDDLE), run.ops.of(LAST)
    rises = [levels[later] - levels[row] for row, later in zip(middle, last, strict=True)]
    step = max(rises)
    return not step or all(
        rise in (0, step) and _goes_on(kernels.producers[later], levels, rises, (row, middle, last))
        for row, later, rise in zip(middle, last, rises, strict=True)
    )


def _goes_on(
    producers: Sequence[int], levels: Sequence[int], rises: Sequence[int], place: tuple[int, range, range]
) -> bool:
    """Whether the level of a call in the last block follows from the same producers as in any block before."""
    row, middle, last = place
    rises_itself = rises[row - middle.start] > 0
    for producer in producers:
        if producer < 0:
            continue
        block = next((one for one in (middle, last) if producer in one), None)
        rising = block is not None and rises[producer - block.start] > 0
        if rising != rises_itself and (rising or levels[producer] + 1 >= levels[row]):
            return False
    return True


class _Times(msgspec.Struct, frozen=True):
    """How many times things count."""

    of_calls: list[int]
    growing: set[int]  # kernels that have a part in every block of a run

    def of_read(self, kernel: int, storage: int, storages: Storages) -> int:
        """For how many storages it stands that a kernel reads one."""
        return storages.times.get(storage, 1) if kernel in self.growing else self.of_calls[kernel]


def _growing(kernels: _Kernels, short: Short, storages: Storages) -> set[int] | None:
    """The kernels with a part in every block of a run; None where it is not clear what each block adds to them.

    Other kernels lie in one block or in two that follow each other. What a block adds to a growing one is clear where
    it reads only what all blocks read, what the block has for itself, and what the kernel made.
    """
    groups, inputs, growing = kernels.groups, short.trace.ops.inputs, set()
    for run in short.runs:
        first, middle, last = run.ops.of(FIRST).start, run.ops.of(MIDDLE), run.ops.of(LAST)
        for row, later in zip(middle, last, strict=True):
            if groups[row] >= first and groups[later] >= middle.start:
                continue
            growing.add(groups[row])
            clear = groups[row] == groups[later] and all(
                (producer >= 0 and groups[producer] == groups[row]) or tensor == other or storage in storages.times
                for producer, tensor, other, storage in zip(
                    kernels.producers[row], inputs[row], inputs[later], storages.read[row], strict=False
                )
            )
            if not clear:
                return None
    return growing


def _producers(trace: Trace, priced: Sequence[PricedSignature], storages: Storages) -> list[tuple[int, ...]]:
    """Views hand the memory on without writing it, so the last op that wrote it counts."""
    storage_of, writes = trace.tensors.storage_of, trace.ops.writes
    writer = [_NO_WRITER] * len(storages.sizes)
    views = [one.kind is Kind.VIEW for one in priced]
    found: list[tuple[int, ...]] = []
    for index, (signature, read) in enumerate(zip(trace.ops.signature_of, storages.read, strict=True)):
        if views[signature]:
            found.append(())
            continue
        found.append(tuple(map(writer.__getitem__, read)))
        for storage in storages.made[index]:
            writer[storage] = index
        for tensor in writes.get(index, ()):
            writer[storage_of[tensor]] = index
    return found


class _Groups:
    """Which calls form one kernel.

    Each call has a level: that of its producer where both may be fused, one more otherwise. Calls of one level that
    hand data to each other form a kernel: no path can leave it and come back, since leaving raises the level.
    """

    def __init__(self, trace: Trace, priced: Sequence[PricedSignature], producers: Sequence[tuple[int, ...]]) -> None:
        self._ops = trace.ops
        self._priced = priced
        self._producers = producers
        views = [one.kind is Kind.VIEW for one in priced]
        self._calls = [call for call, signature in enumerate(self._ops.signature_of) if not views[signature]]
        self._fusible = [one.kind in _FUSIBLE for one in priced]  # by signature
        self._parent = list(range(len(self._ops)))
        self.levels = [0] * len(self._ops)

    def found(self) -> list[int]:
        """The kernel of each call, named by its first call."""
        scores, products = self._written_out_attention()
        fusible = list(map(self._fusible.__getitem__, self._ops.signature_of))
        joins_before, joins_after = fusible.copy(), fusible.copy()
        for call in products:
            joins_before[call] = True
        for call in scores:
            joins_after[call] = True
        level = self.levels
        for call in self._calls:
            made_by = self._producers[call]
            joins = joins_before[call]
            highest = 0
            for producer in made_by:
                if producer >= 0:
                    # A border between kernels raises the level. The highest of all inputs counts: joining a producer
                    # of a lower level would close a cycle through the kernels in between.
                    own = level[producer] if joins and joins_after[producer] else level[producer] + 1
                    highest = max(highest, own)
            level[call] = highest
            if joins:
                for producer in made_by:
                    if producer >= 0 and level[producer] == highest and joins_after[producer]:
                        self._unite(producer, call)
        for call, before in enumerate(self._parent):  # the first call of a kernel stands before all others
            self._parent[call] = self._parent[before]
        return self._parent

    def _written_out_attention(self) -> tuple[set[int], set[int]]:
        """The matmuls that make scores for a softmax, and those that use its result."""
        softmax = {number for number, signature in enumerate(self._ops.signatures) if signature.op in _SOFTMAX}
        if not softmax:
            return set(), set()
        matmul = [one.kind is Kind.MATMUL for one in self._priced]
        elements = [max((one.elements for one in called.output_specs), default=0) for called in self._ops.signatures]
        sizes = list(map(elements.__getitem__, self._ops.signature_of))
        made_by: dict[int, int] = {}  # call with the size of the scores -> the matmul that made them
        weights: dict[int, int] = {}  # call that hands on the result of a softmax -> the matmul before the softmax
        scores: set[int] = set()
        products: set[int] = set()
        for call in self._calls:
            producers, signature = self._producers[call], self._ops.signature_of[call]
            if matmul[signature]:
                made_by[call] = call
                used = [weights[one] for one in producers if one in weights]
                scores.update(used)
                products.update([call] if used else ())
            elif self._fusible[signature]:
                # Scale, mask and dropout keep the size of the scores; anything else ends the chain, so that a softmax
                # over other data is not taken for attention.
                alike = [one for one in producers if one >= 0 and sizes[one] == sizes[call]]
                source = next((made_by[one] for one in alike if one in made_by), None)
                if source is not None and signature in softmax:
                    weights[call] = source
                elif source is not None:
                    made_by[call] = source
                weights.update((call, weights[one]) for one in alike if one in weights)
        return scores, products

    def _root(self, call: int) -> int:
        parent = self._parent
        while parent[call] != call:
            parent[call] = parent[parent[call]]
            call = parent[call]
        return call

    def _unite(self, one: int, other: int) -> None:
        one, other = self._root(one), self._root(other)
        self._parent[max(one, other)] = min(one, other)


def _count(
    trace: Trace, priced: Sequence[PricedSignature], storages: Storages, kernels: _Kernels, times: _Times
) -> Traffic:
    storage_of, ops, groups = trace.tensors.storage_of, trace.ops, kernels.groups
    sizes, tensors = storages.sizes, len(trace.tensors)
    seen: dict[int, int] = {}  # kernel and view as one number -> bytes read of it
    read_of: dict[int, int] = {}  # kernel and storage as one number -> bytes read of it, over all views
    needed = _needed(trace, storages, kernels)
    written: dict[int, int] = {}  # storage -> bytes
    moving = [one.moves_something for one in priced]
    for call, signature in enumerate(ops.signature_of):
        if not moving[signature]:
            continue
        one, group = priced[signature], groups[call]
        for tensor, size, producer in zip(ops.inputs[call], one.reads, kernels.producers[call], strict=True):
            if size and (producer < 0 or groups[producer] != group):
                more = size - seen.get(group * tensors + tensor, 0)
                if more > 0:
                    seen[group * tensors + tensor] = size
                    place = group * len(sizes) + storage_of[tensor]
                    read_of[place] = read_of.get(place, 0) + more
        if call in needed:
            for tensor, size in zip(ops.outputs[call] or ops.writes.get(call, ()), one.writes, strict=False):
                storage = storage_of[tensor]
                written[storage] = written.get(storage, 0) + size * times.of_calls[call]
    read: dict[int, int] = {}
    for place, size in read_of.items():
        group, storage = divmod(place, len(sizes))
        read[storage] = read.get(storage, 0) + min(size, sizes[storage]) * times.of_read(group, storage, storages)
    return Traffic(read_bytes=storages.by_category(read), written_bytes=storages.by_category(written))


def _needed(trace: Trace, storages: Storages, kernels: _Kernels) -> set[int]:
    """The calls whose result is used outside their kernel."""
    storage_of, ops, groups = trace.tensors.storage_of, trace.ops, kernels.groups
    needed = {
        producer
        for group, producers in zip(groups, kernels.producers, strict=True)
        for producer in producers
        if producer >= 0 and groups[producer] != group
    }
    lasting = storages.kept | storages.names.keys()
    last: dict[int, int] = {}
    for call, producers in enumerate(kernels.producers):
        if producers or not ops.inputs[call]:
            for tensor in ops.outputs[call]:
                if storage_of[tensor] in lasting:
                    last[storage_of[tensor]] = call
    for call, tensors in sorted(ops.writes.items()):
        for tensor in tensors:
            if storage_of[tensor] in lasting:
                last[storage_of[tensor]] = max(call, last.get(storage_of[tensor], call))
    return needed | set(last.values())


# The traffic that no implementation can avoid: weights, cache, inputs and outputs, each once.


def compulsory_traffic(
    short: Short, priced: Sequence[PricedSignature], storages: Storages, read: Mapping[int, int]
) -> Traffic:
    """Of each piece that was there before, what the ops read of it, at most all of it; of the results, all.

    `read` has the bytes that ops read, by storage. Of a cache only what is new is written. A training step also writes
    the gradients of its trainable parameters.
    """
    there = [storage for storage in read if storage in storages.names]
    once = {storage: min(read[storage], storages.whole_size(storage)) for storage in there}
    written = _written(short.trace, priced, storages, short.times_of_rows())
    return Traffic(read_bytes=storages.by_category(once), written_bytes=written)


def _written(
    trace: Trace, priced: Sequence[PricedSignature], storages: Storages, times: Sequence[int]
) -> dict[Category, int]:
    made = storages.kept - storages.gradients - storages.names.keys()
    written = storages.by_category({storage: storages.whole_size(storage) for storage in made})
    written[Category.KV_CACHE] = new_cache_bytes(trace, storages, made)
    written[Category.KV_CACHE] += _written_into(trace, priced, storages, times)
    if trace.recorded_ops.forward_calls < trace.size.op:
        written[Category.WEIGHTS] += _trainable_bytes(trace)
    return written


def _written_into(trace: Trace, priced: Sequence[PricedSignature], storages: Storages, times: Sequence[int]) -> int:
    """Bytes written in place to caches that came in."""
    storage_of, ops = trace.tensors.storage_of, trace.ops
    written = {
        call: times[call] * sum(priced[ops.signature_of[call]].writes)
        for call, tensors in ops.writes.items()
        if any(storage_of[tensor] in storages.cache_inputs for tensor in tensors)
    }
    return new_bytes_in_place(trace, storages, written) if written else 0


def _trainable_bytes(trace: Trace) -> int:
    trainable = {parameter.tensor for module in trace.modules for parameter in module.parameters if parameter.trainable}
    return sum(trace.held_spec(tensor).size_bytes or 0 for tensor in trainable)
