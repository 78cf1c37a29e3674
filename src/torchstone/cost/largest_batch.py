"""The largest batch that fits in a memory, worked out from one capture.

Memory that is computed from the inputs grows with the batch; weights, the gradients of weights and tables that do not
depend on the inputs stay as they are. As the batch grows, the peak may move to another op, and a tile that is not full
takes more rows for nothing. So the peak is worked out anew for each batch that is looked at.

Of some tensors a capture does not tell whether they grow: a table of positions [1, tokens] that was captured with a
batch of 1, or a sum over the batch. The answer is then a range: a batch that fits if all of them grow, and one that is
the largest if none does. Eager lifetimes are known as one number, which bounds them for another batch from both sides.
All this holds as long as the model runs the same ops with another batch. From a batch of 1 that is less certain: what
is stretched to the batch and then copied was not copied there.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache

import msgspec

from torchstone.cost.caches import in_blocks
from torchstone.cost.liveness import Lives, lives_of, peak_bytes
from torchstone.cost.registry import find_price
from torchstone.cost.shorten import Short, shorten, whole
from torchstone.cost.storages import Storages, storages_of
from torchstone.cost.tiles import TiledForm, in_tiles, tiled_forms
from torchstone.record.cost import Category, Conventions, CostTable, Kind
from torchstone.record.trace import Trace

_MOST = 1 << 40  # larger ones say that memory is no limit
_DIVISIBLE = Fraction(99, 100)  # of what grows: so much must be whole batches
_SAME_FIRST = frozenset((Kind.MATMUL, Kind.ATTENTION, Kind.COPY))  # do not stretch the first of equally many dimensions
_ONE_BY_ONE = frozenset(("aten.bmm.default", "aten.baddbmm.default"))


class BatchRange(msgspec.Struct, frozen=True):
    """`least` fits, one more than `most` does not; equal where the capture tells it. None: not known."""

    least: int | None = None
    most: int | None = None


class LargestBatches(msgspec.Struct, frozen=True):
    """Batches that fit: with ideal lifetimes, and with those that were observed."""

    captured: int | None = None
    ideal: BatchRange = BatchRange()
    eager: BatchRange = BatchRange()


def largest_batches(trace: Trace, table: CostTable, memory_bytes: int) -> LargestBatches:
    """The largest batches of which the peak is not above `memory_bytes`.

    Not known without an input, where its first dimension is not that of a batch, where nothing grows, and where the
    size of a tensor is not known. With eager lifetimes not known for a training step, of which gradients are a part.
    """
    batch = _batch_size(trace)
    if not batch or table.peak.unsized:
        return LargestBatches()
    memory = _GrowingMemory(trace, table.conventions, batch)
    if not memory.grows_in_batches():
        return LargestBatches()
    ideal = _range(memory.most_bytes, memory.least_bytes, memory_bytes)
    if trace.eager_memory is None or trace.recorded_ops.forward_calls != trace.size.op:
        return LargestBatches(batch, ideal)
    eager = _EagerMemory(trace, memory, batch, trace.eager_memory.peak_bytes)
    return LargestBatches(batch, ideal, _range(eager.most_bytes, eager.least_bytes, memory_bytes))


def _range(most: Callable[[int], int], least: Callable[[int], int], memory_bytes: int) -> BatchRange:
    return BatchRange(least=_search(most, memory_bytes), most=_search(least, memory_bytes))


def _search(peak_of: Callable[[int], int], memory_bytes: int) -> int:
    """The largest batch whose peak fits; peaks do not fall as the batch grows."""
    fits, too_large = 0, 1
    while peak_of(too_large) <= memory_bytes:
        fits, too_large = too_large, _beyond(peak_of, too_large, memory_bytes)
        if fits >= _MOST:
            return _MOST
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        fits, too_large = (middle, too_large) if peak_of(middle) <= memory_bytes else (fits, middle)
    return fits


def _beyond(peak_of: Callable[[int], int], batch: int, memory_bytes: int) -> int:
    """A batch that would be too large if the peak went on as between a batch and its double; at least the double."""
    here, there = peak_of(batch), peak_of(2 * batch)
    more = (memory_bytes - here) * batch // max(there - here, 1)
    return min(max(batch + more + 1, 2 * batch), _MOST)


class _GrowingMemory:
    """The ideal peak of a trace, as a function of the batch."""

    def __init__(self, trace: Trace, conventions: Conventions, batch: int) -> None:
        block = conventions.block_size
        self._batch = batch
        self._tile = conventions.tile
        self._short = shorten(trace) if block is None else whole(trace)  # blocks are found by layer
        found = storages_of(self._short)
        self._plain = in_blocks(trace, found, block)
        self._stored = in_blocks(trace, in_tiles(self._short, found, self._tile), block, self._tile)
        self._lives: Lives = lives_of(self._short.trace, self._stored)
        growth = _Growth(self._short, self._stored, batch)
        self._grows, self._may_grow = growth.found()
        self._dims = growth.dims
        self._forms: dict[int, TiledForm] = {}
        if self._tile is not None:
            blocks = (
                set()
                if block is None
                else {storage for storage, kind in enumerate(found.categories) if kind is Category.KV_CACHE}
            )
            self._forms = {
                storage: form for storage, form in tiled_forms(self._short, found).items() if storage not in blocks
            }
        self.most_bytes = cache(lambda size: self._peak_bytes(size, self._grows | self._may_grow, max))
        self.least_bytes = cache(lambda size: self._peak_bytes(size, self._grows, min))

    def grows_in_batches(self) -> bool:
        """Whether anything grows, and what does so is a whole number of batches."""
        sizes = [self._plain.sizes[storage] for storage in self._grows | self._may_grow]
        whole_bytes = sum(size for size in sizes if size % self._batch == 0)
        return sum(sizes) > 0 and whole_bytes >= _DIVISIBLE * sum(sizes)

    def constant_bytes(self) -> tuple[int, int]:
        """Bytes that are live all the time whatever the batch, and the most that can be live of what need not grow."""
        pieces, lives = self._stored, self._lives
        fixed = [one for one in lives.used if one not in self._grows]
        always = [one for one in fixed if lives.always(one) and one not in self._may_grow]
        return sum(map(pieces.whole_size, always)), sum(map(pieces.whole_size, fixed))

    def _peak_bytes(self, batch: int, growing: Iterable[int], choose: Callable[[Iterable[int]], int]) -> int:
        sizes = list(self._stored.sizes)
        for storage in growing:
            form = self._forms.get(storage)
            loose = -(-self._plain.sizes[storage] * batch // self._batch)
            if form is not None and self._tile is not None:
                found = form.sizes_bytes(self._tile, self._batch, batch, self._dims.get(storage))
                sizes[storage] = max(loose, choose(found))
            else:
                sizes[storage] = -(-sizes[storage] * batch // self._batch)
        return peak_bytes(self._short, msgspec.structs.replace(self._stored, sizes=sizes), self._lives)


class _EagerMemory:
    """Bounds of the peak with eager lifetimes, of which that of the captured batch is known.

    At each moment a constant part is held, at least what is always there and at most all that does not grow; the rest
    grows. Tiles and blocks add what they add to the ideal peak, as for the captured batch.
    """

    def __init__(self, trace: Trace, ideal: _GrowingMemory, batch: int, peak: int) -> None:
        self._ideal = ideal
        self._loose = _GrowingMemory(trace, Conventions(), batch)
        self._batch = batch
        self._peak = peak
        self._constants = self._loose.constant_bytes()

    def most_bytes(self, batch: int) -> int:
        """A bound from above."""
        held, ideal = max(self._in_proportion(batch)), self._ideal.most_bytes(batch)
        return max(held - self._loose.least_bytes(batch), 0) + ideal

    def least_bytes(self, batch: int) -> int:
        """A bound from below."""
        held, ideal = min(self._in_proportion(batch)), self._ideal.least_bytes(batch)
        return max(held - self._loose.most_bytes(batch), 0) + ideal

    def _in_proportion(self, batch: int) -> list[int]:
        """The peak if so much of it is constant: the two extremes."""
        constants = (min(one, self._peak) for one in self._constants)
        return [one + -(-(self._peak - one) * batch // self._batch) for one in constants]


class _Growth:
    """Which pieces of memory follow the batch, and of which that is not known."""

    def __init__(self, short: Short, storages: Storages, batch: int) -> None:
        self._trace = short.trace
        self._storages = storages
        self._batch = batch
        self._grows: set[int] = set()
        self._may_grow: set[int] = set()
        self.dims: dict[int, int] = {}  # storage -> the dimension that is known to grow
        table = self._trace.tensors
        self._shapes: dict[int, tuple[int, ...]] = {}  # as it was there or was made: a view may be an expanded one
        for spec, storage in zip(table.spec_of, table.storage_of, strict=True):
            self._shapes.setdefault(storage, table.specs[spec].shape)

    def found(self) -> tuple[set[int], set[int]]:
        """The storages that grow, and those that may."""
        table, storages = self._trace.tensors, self._storages
        given = {table.storage_of[one.tensor] for one in table.external if one.kind == "input"}
        for storage in given | storages.cache_inputs:
            self._add(storage, sure=True)
        ops = self._trace.ops
        kinds = [entry.kind if (entry := find_price(one.op)) else Kind.UNPRICED for one in ops.signatures]
        for row, signature in enumerate(ops.signature_of):
            written = [table.storage_of[tensor] for tensor in ops.writes.get(row, ())]
            self._follow(kinds[signature], storages.read[row], {*storages.made[row], *written})
            self._follow_dims(ops.signatures[signature].op, storages.read[row], storages.made[row])
        fixed = {number for number, one in enumerate(storages.categories) if one is Category.WEIGHTS}
        fixed |= _gradients(self._trace)
        grows = {one for one in self._grows - fixed if storages.sizes[one]}
        return grows, {one for one in self._may_grow - fixed - grows if storages.sizes[one]}

    def _follow(self, kind: Kind, read: Iterable[int], made: Iterable[int]) -> None:
        growing = [one for one in read if one in self._grows]
        if growing:
            self._add_partners(kind, growing, read)
            firsts = {self._shapes[one][:1] for one in growing}
            for one in made:
                self._add(one, sure=kind is not Kind.REDUCTION or self._shapes[one][:1] in firsts)
        elif any(one in self._may_grow for one in read):
            for one in made:
                self._add(one, sure=False)
        else:
            self._may_grow.update(
                one for one in made if self._batch in self._shapes[one] and len(self._shapes[one]) > 1
            )

    def _follow_dims(self, op: str, read: Iterable[int], made: Iterable[int]) -> None:
        """Matrices that are multiplied one by one keep their number, and what has their shape is made of them."""
        known = {self._shapes[one]: self.dims[one] for one in read if one in self.dims}
        for one in made:
            if op in _ONE_BY_ONE:
                self.dims.setdefault(one, 0)
            elif self._shapes[one] in known:
                self.dims.setdefault(one, known[self._shapes[one]])

    def _add(self, storage: int, *, sure: bool) -> None:
        """A piece that depends on what grows; a single number never does, nor what has no dimension of the batch."""
        shape, batch = self._shapes[storage], self._batch
        if not shape:
            return
        of_batch = shape[0] % batch == 0 or batch in shape
        (self._grows if sure and of_batch else self._may_grow).add(storage)

    def _add_partners(self, kind: Kind, growing: Iterable[int], read: Iterable[int]) -> None:
        """What does not depend on the inputs, but must have the batch of what does, as it is not stretched to it."""
        if self._batch == 1:
            return
        shapes = {self._shapes[one] for one in growing}
        firsts = {(len(shape), shape[0]) for shape in shapes if shape[0] == self._batch}
        for one in read:
            shape = self._shapes[one]
            same = shape in shapes and kind is Kind.POINTWISE
            if same or (shape and kind in _SAME_FIRST and (len(shape), shape[0]) in firsts):
                self._grows.add(one)


def _gradients(trace: Trace) -> set[int]:
    """Pieces that the backward pass makes in the form of a weight or its gradient: gradients, and parts of them.

    A weight that is stored in another number format has a gradient in the format of the capture.
    """
    ops, tensors = trace.ops, trace.tensors
    if trace.recorded_ops.forward_calls == trace.size.op:
        return set()
    forms = {tensors.spec_of[one.tensor] for one in tensors.external if one.kind == "parameter"}
    forms.update(tensors.spec_of[one] for one in tensors.gradients.values())
    sizes = {(tensors.specs[form].dtype, tensors.specs[form].shape) for form in forms}
    specs = tensors.specs
    return {
        tensors.storage_of[tensor]
        for row in range(ops.forward_calls, len(ops))
        for tensor in ops.outputs[row]
        if (specs[tensors.spec_of[tensor]].dtype, specs[tensors.spec_of[tensor]].shape) in sizes
    }


def _batch_size(trace: Trace) -> int | None:
    """The first dimension of the first input."""
    for external in trace.recorded_tensors.external:
        if external.kind == "input":
            shape = trace.held_spec(external.tensor).shape
            return shape[0] if shape else None
    return None
