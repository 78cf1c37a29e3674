"""The largest batch that fits in a memory, worked out from one capture.

Memory that is computed from the inputs grows with the batch, and so do tensors of the batch's own length; weights, the
gradients of weights and tables that do not depend on the inputs stay as they are. As the batch grows, the peak may move
to another op, and a tile that is not full takes more rows for nothing. So the peak is worked out anew for each batch
that is looked at. It is an estimate all the same: the code of a model may do something else with another batch.
"""

from collections.abc import Callable
from fractions import Fraction

import msgspec

from torchstone.cost.caches import in_blocks
from torchstone.cost.liveness import Lives, lives_of, peak_bytes
from torchstone.cost.shorten import Short, shorten, whole
from torchstone.cost.storages import Storages, storages_of
from torchstone.cost.tiles import TiledForm, in_tiles, tiled_forms
from torchstone.record.cost import Category, Conventions, CostTable
from torchstone.record.trace import Trace

_MOST = 1 << 40  # larger ones say that memory is no limit
_DIVISIBLE = Fraction(99, 100)  # of what grows: so much must be whole batches


class LargestBatches(msgspec.Struct, frozen=True):
    """Batches that fit: with ideal lifetimes, and with those that were observed. None: not known."""

    ideal: int | None = None
    eager: int | None = None


def largest_batches(trace: Trace, table: CostTable, memory_bytes: int) -> LargestBatches:
    """The largest batches of which the peak is not above `memory_bytes`.

    Not known without an input, where its first dimension is not that of a batch, where nothing grows, and where the
    size of a tensor is not known. Of eager
    lifetimes only the peak is known, so what they hold beyond the ideal is taken to grow as it does: not known for a
    training step, of which gradients are a part.
    """
    batch = _batch_size(trace)
    if not batch or table.peak.unsized:
        return LargestBatches()
    memory = _GrowingMemory(trace, table.conventions, batch)
    if not memory.grows_in_batches():
        return LargestBatches()
    eager = table.peak.eager_bytes
    ideal = _search(memory.peak_bytes, memory_bytes)
    if eager is None or trace.recorded_ops.forward_calls != trace.size.op:
        return LargestBatches(ideal)
    beyond = Fraction(eager - table.peak.total_bytes, batch)
    return LargestBatches(ideal, _search(lambda size: memory.peak_bytes(size) + round(beyond * size), memory_bytes))


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
    """The memory of a trace, as a function of the batch."""

    def __init__(self, trace: Trace, conventions: Conventions, batch: int) -> None:
        block = conventions.block_size
        self._batch = batch
        self._tile = conventions.tile
        self._short = shorten(trace) if block is None else whole(trace)  # blocks are found by layer
        found = storages_of(self._short)
        self._plain = in_blocks(trace, found, block)
        self._stored = in_blocks(trace, in_tiles(self._short, found, self._tile), block, self._tile)
        self._lives: Lives = lives_of(self._short.trace, self._stored)
        self._growing = _growing(self._short, self._stored, batch)
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

    def grows_in_batches(self) -> bool:
        """Whether anything grows, and what does so is a whole number of batches."""
        sizes = [self._plain.sizes[storage] for storage in self._growing]
        whole_bytes = sum(size for size in sizes if size % self._batch == 0)
        return sum(sizes) > 0 and whole_bytes >= _DIVISIBLE * sum(sizes)

    def peak_bytes(self, batch: int) -> int:
        """The peak with another batch."""
        batches = Fraction(batch, self._batch)
        sizes = list(self._stored.sizes)
        for storage in self._growing:
            form = self._forms.get(storage)
            loose = -(-self._plain.sizes[storage] * batch // self._batch)
            if form is not None and self._tile is not None:
                sizes[storage] = max(loose, form.size_bytes(self._tile, batches))
            else:
                sizes[storage] = -(-sizes[storage] * batch // self._batch)
        return peak_bytes(self._short, msgspec.structs.replace(self._stored, sizes=sizes), self._lives)


def _growing(short: Short, storages: Storages, batch: int) -> set[int]:
    """The storages whose size follows the batch."""
    trace = short.trace
    table, ops = trace.tensors, trace.ops
    follows = {table.storage_of[one.tensor] for one in table.external if one.kind == "input"} | storages.cache_inputs
    for row, (read, made) in enumerate(zip(storages.read, storages.made, strict=True)):
        if not follows.isdisjoint(read):
            follows.update(made)
            follows.update(table.storage_of[tensor] for tensor in ops.writes.get(row, ()))
    for spec, storage in zip(table.spec_of, table.storage_of, strict=True):
        shape = table.specs[spec].shape
        if len(shape) > 1 and shape[0] == batch:
            follows.add(storage)
    fixed = {number for number, one in enumerate(storages.categories) if one is Category.WEIGHTS} | _gradients(trace)
    return {storage for storage in follows - fixed if storages.sizes[storage]}


def _gradients(trace: Trace) -> set[int]:
    """Pieces that the backward pass makes in the form of a weight: gradients, and parts of them."""
    ops, tensors = trace.ops, trace.tensors
    if trace.recorded_ops.forward_calls == trace.size.op:
        return set()
    forms = {tensors.spec_of[one.tensor] for one in tensors.external if one.kind == "parameter"}
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
