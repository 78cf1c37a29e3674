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

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cache

import msgspec

from torchstone.cost.caches import in_blocks
from torchstone.cost.liveness import Lives, lives_of, peak_bytes
from torchstone.cost.registry import find_price, numbers
from torchstone.cost.shorten import Short, shorten, whole
from torchstone.cost.storages import Storages, storages_of
from torchstone.cost.tiles import TiledForm, in_tiles, tiled_forms
from torchstone.record.cost import Category, Conventions, CostTable, Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace

MOST_BATCHES = 1 << 40  # larger ones say that memory is no limit
_DIVISIBLE = Fraction(99, 100)  # of what grows: so much must be whole batches
_SAME_FIRST = frozenset((Kind.ATTENTION, Kind.COPY))  # do not stretch the first of equally many dimensions
_STATISTICS = frozenset((Kind.REDUCTION, Kind.NORMALISATION))  # may be made over the batch
_OPERANDS = 2  # of a product; also the dimensions of a matrix
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
    unknown: str = ""  # why there are none; "" where a tensor of unknown size says it


def largest_batches(trace: Trace, table: CostTable, memory_bytes: int) -> LargestBatches:
    """The largest batches of which the peak is not above `memory_bytes`.

    Not known without an input, where its first dimension is not that of a batch, where nothing grows, and where the
    size of a tensor is not known. With eager lifetimes not known for a training step, of which gradients are a part,
    and where some of the memory may grow with the square of the batch.
    """
    batch = _batch_size(trace)
    if table.peak.unsized:
        return LargestBatches()
    if not batch:
        return LargestBatches(unknown="the first input has no dimension that could be that of a batch")
    memory = _GrowingMemory(trace, table.conventions, batch)
    if not memory.grows_in_batches():
        return LargestBatches(unknown=f"memory does not divide by the first dimension of the first input, {batch:,}")
    ideal = _range(memory.most_bytes, memory.least_bytes, memory_bytes)
    if trace.eager_memory is None or trace.recorded_ops.forward_calls != trace.size.op or memory.squares:
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
        if fits >= MOST_BATCHES:
            return MOST_BATCHES
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        fits, too_large = (middle, too_large) if peak_of(middle) <= memory_bytes else (fits, middle)
    return fits


def _beyond(peak_of: Callable[[int], int], batch: int, memory_bytes: int) -> int:
    """A batch that would be too large if the peak went on as between a batch and its double; at least the double."""
    here, there = peak_of(batch), peak_of(2 * batch)
    more = (memory_bytes - here) * batch // max(there - here, 1)
    return min(max(batch + more + 1, 2 * batch), MOST_BATCHES)


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
        self.squares = growth.squares
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
        self.most_bytes = cache(lambda size: self._peak_bytes(size, max))
        self.least_bytes = cache(lambda size: self._peak_bytes(size, min))

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

    def _peak_bytes(self, batch: int, choose: Callable[[Iterable[int]], int]) -> int:
        sizes = list(self._stored.sizes)
        for storage in self._grows | self._may_grow:
            size = self._grown_bytes(storage, batch, choose)
            if storage in self.squares:
                size = choose((size, self._squared_bytes(storage, batch)))
            sizes[storage] = size if storage in self._grows else choose((size, sizes[storage]))
        return peak_bytes(self._short, msgspec.structs.replace(self._stored, sizes=sizes), self._lives)

    def _squared_bytes(self, storage: int, batch: int) -> int:
        form = self._forms.get(storage)
        if form is not None and self._tile is not None:
            return form.squared_bytes(self._tile, self._batch, batch)
        return -(-self._stored.sizes[storage] * batch**2 // self._batch**2)

    def _grown_bytes(self, storage: int, batch: int, choose: Callable[[Iterable[int]], int]) -> int:
        form = self._forms.get(storage)
        if form is None or self._tile is None:
            return -(-self._stored.sizes[storage] * batch // self._batch)
        loose = -(-self._plain.sizes[storage] * batch // self._batch)
        return max(loose, choose(form.sizes_bytes(self._tile, self._batch, batch, self._dims.get(storage))))


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
        self.squares: set[int] = set()  # those that may grow with the square of the batch
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
        for row, number in enumerate(ops.signature_of):
            written = [table.storage_of[tensor] for tensor in ops.writes.get(row, ())]
            kind, signature, read = kinds[number], ops.signatures[number], storages.read[row]
            made = {*storages.made[row], *written}
            if self.squares.intersection(read) or self._is_square(kind, signature, read):
                self.squares |= made
            self._follow(kind, signature, read, made)
            self._follow_dims(signature.op, read, storages.made[row])
        fixed = {number for number, one in enumerate(storages.categories) if one is Category.WEIGHTS}
        fixed |= _gradients(self._trace)
        grows = {one for one in self._grows - fixed if storages.sizes[one]}
        return grows, {one for one in self._may_grow - fixed - grows if storages.sizes[one]}

    def _follow(self, kind: Kind, signature: OpSignature, read: Sequence[int], made: Iterable[int]) -> None:
        growing = [one for one in read if one in self._grows]
        if growing:
            self._add_partners(kind, signature, read)
            firsts = {self._shapes[one][:1] for one in growing}
            is_summed = self._is_summed(kind, signature, read)
            for one in made:
                self._add(one, sure=not is_summed and (kind not in _STATISTICS or self._shapes[one][:1] in firsts))
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

    def _add_partners(self, kind: Kind, signature: OpSignature, read: Sequence[int]) -> None:
        """What does not depend on the inputs, but must have the batch of what does, as it is not stretched to it."""
        if self._batch == 1:
            return
        growing = [number for number, one in enumerate(read) if one in self._grows]
        views = signature.input_specs
        shapes = {self._shapes[read[number]] for number in growing}
        seen = {views[number].shape for number in growing}
        firsts = {(len(shape), shape[0]) for shape in shapes if shape[0] == self._batch}
        same_first = signature.op in _ONE_BY_ONE or (kind in _SAME_FIRST and not _is_over_first(signature))
        for view, one in zip(views, read, strict=True):
            shape = self._shapes[one]
            same = shape in shapes and view.shape in seen and kind is Kind.POINTWISE
            if same or (shape and same_first and (len(shape), shape[0]) in firsts):
                self._grows.add(one)

    def _is_summed(self, kind: Kind, signature: OpSignature, read: Sequence[int]) -> bool:
        """Whether an op adds up over the batch: a sum over it, or a product as for the gradient of a weight."""
        if kind is Kind.REDUCTION:
            return _is_over_first(signature)
        return kind is Kind.MATMUL and _outermost_of_matrices(self._growing_views(signature, read)) == (1, 0)

    def _growing_views(self, signature: OpSignature, read: Sequence[int]) -> list[TensorSpec]:
        return [
            view for view, one in zip(signature.input_specs, read, strict=True) if one in self._grows and view.shape
        ]

    def _is_square(self, kind: Kind, signature: OpSignature, read: Sequence[int]) -> bool:
        """Whether each row of the batch meets each other one, so that the result grows with the square of the batch."""
        growing = self._growing_views(signature, read) if kind in (Kind.MATMUL, Kind.POINTWISE) else []
        if len(growing) < _OPERANDS:
            return False
        made = max((spec.shape.count(self._batch) for spec in signature.output_specs), default=0)
        if self._batch > 1 and made > max(view.shape.count(self._batch) for view in growing):
            return True
        left, right = growing[-_OPERANDS:]
        return (
            kind is Kind.MATMUL
            and _outermost_of_matrices(growing) == (0, 1)
            and not (left.shape[0] % self._batch or right.shape[1] % self._batch)
        )


def _outermost_of_matrices(operands: Sequence[TensorSpec]) -> tuple[int, ...]:
    """Of two matrices that are multiplied, the dimensions that lie outermost in memory, where the batch stands."""
    matrices = [view for view in operands[-_OPERANDS:] if len(view.shape) == _OPERANDS]
    strides = [view.stride or (1, 0) for view in matrices]
    return tuple(int(columns > rows) for rows, columns in strides)


def _is_over_first(signature: OpSignature) -> bool:
    """Whether an op works over the first dimension, that of the batch, or over all."""
    dims = numbers(signature, "dim")
    rank = max((len(spec.shape) for spec in signature.input_specs), default=0)
    return dims is not None and (not dims or 0 in dims or -rank in dims)


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
