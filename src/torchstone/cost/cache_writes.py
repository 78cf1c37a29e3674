"""What a step adds to the caches that it gives back in new memory.

A cache that grows is a copy of the old one with new tokens behind it: of that, the new tokens alone are written by a
machine that appends in place. A state that is computed anew is new as a whole, even if it is as large as the old one.
So each result is followed back, through copies, to where its elements come from.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from torchstone.cost.registry import find_price, value_of
from torchstone.cost.storages import Storages
from torchstone.record.base import Record
from torchstone.record.cost import Category, Kind
from torchstone.record.op import OpSignature
from torchstone.record.trace import Trace

_JOINS = ("aten.cat.default", "aten.stack.default")
_PUTS = frozenset(("index_copy", "index_put", "_unsafe_index_put", "scatter", "slice_scatter", "select_scatter"))


class _Content(Record, frozen=True, kw_only=True):
    """Where the elements of a piece of memory come from."""

    new: int  # elements that were not in a cache before the step
    total: int
    shape: tuple[int, ...] = ()
    dim: int | None = None  # along which new elements stand behind old ones; None: not known

    def part(self, shape: tuple[int, ...], elements: int) -> int:
        """How many elements of a view are new: a window keeps the last tokens, any other part has its share of them."""
        if self.new >= self.total:
            return elements
        others = [one for one, length in enumerate(self.shape) if len(self.shape) != len(shape) or length != shape[one]]
        if not others or others == [self.dim]:
            return min(self.new, elements)
        return -(-elements * self.new // max(self.total, 1))


def new_cache_bytes(trace: Trace, storages: Storages, made: Iterable[int]) -> int:
    """Bytes of what is new in the caches among some pieces of memory that ops made."""
    caches = [one for one in made if storages.categories[one] is Category.KV_CACHE and storages.sizes[one]]
    if not caches:
        return 0
    if not storages.cache_inputs:
        return sum(map(storages.whole_size, caches))
    origins = _Origins(trace, storages)
    found = 0
    for storage in caches:
        content = origins.content(storage)
        found += -(-storages.whole_size(storage) * content.new // max(content.total, 1))
    return found


def new_bytes_in_place(trace: Trace, storages: Storages, written: Mapping[int, int]) -> int:
    """Of the bytes that calls write to caches in place, by call, those that are new: some move a whole window.

    A cache that several calls write to is written once at most.
    """
    origins = _Origins(trace, storages)
    new: defaultdict[frozenset[int], int] = defaultdict(int)
    for call, size in written.items():
        caches = frozenset(trace.tensors.storage_of[one] for one in trace.ops.writes[call])
        new[caches] += origins.new_part(call, size)
    return sum(min(size, sum(map(storages.whole_size, caches))) for caches, size in new.items())


class _Origins:
    def __init__(self, trace: Trace, storages: Storages) -> None:
        self._ops, self._table = trace.ops, trace.tensors
        self._kinds = [entry.kind if (entry := find_price(one.op)) else None for one in self._ops.signatures]
        self._writers: defaultdict[int, list[int]] = defaultdict(list)  # storage -> the calls that write it
        storage_of = self._table.storage_of
        for row, (signature, outputs) in enumerate(zip(self._ops.signature_of, storages.made, strict=True)):
            if self._kinds[signature] is not Kind.VIEW:
                for storage in outputs or [storage_of[one] for one in self._ops.writes.get(row, ())]:
                    self._writers[storage].append(row)
        self._known = {one: _Content(new=0, total=1) for one in storages.cache_inputs}

    def new_part(self, call: int, size: int) -> int:
        """Of the bytes that a call writes in place, those that do not come from a cache."""
        source = self._ops.inputs[call][-1:]
        if not self._puts(self._signature(call)) or not source:
            return size
        return -(-size * self._new_in(source) // max(self._table[source[0]].spec.elements, 1))

    def content(self, storage: int) -> _Content:
        """Follow a piece of memory back; what is reached twice, or is no cache of before, is new."""
        for one in self._before(storage):
            self._known[one] = _Content(new=1, total=1)  # while it is looked at
            rows = self._writers.get(one, ())
            if rows:
                self._known[one] = self._written(rows[0], rows[1:])
        return self._known[storage]

    def _before(self, storage: int) -> list[int]:
        """All that a piece of memory comes from and is not known yet, the last written last: chains may be long."""
        last: dict[int, int] = {}
        open_ends = [storage]
        while open_ends:
            one = open_ends.pop()
            if one in self._known or one in last:
                continue
            rows = self._writers.get(one, ())
            last[one] = rows[-1] if rows else -1
            for row in rows:
                if self._passes_on(row):
                    open_ends += [self._table.storage_of[tensor] for tensor in self._ops.inputs[row]]
        return sorted(last, key=last.__getitem__)

    def _passes_on(self, row: int) -> bool:
        """Whether a call gives elements of its inputs on."""
        signature = self._signature(row)
        copies = self._kinds[self._ops.signature_of[row]] is Kind.COPY
        return copies or signature.op in _JOINS or self._puts(signature)

    @staticmethod
    def _puts(signature: OpSignature) -> bool:
        """Whether a call writes its last tensor into the first."""
        name = _name(signature).removesuffix("_")
        return name == "copy" or name in _PUTS

    def _written(self, first: int, later: Sequence[int]) -> _Content:
        made = self._made(first, is_written_to=bool(later))
        new = made.new
        for row in later:
            new += self._new_in(self._ops.inputs[row][-1:]) if self._puts(self._signature(row)) else made.total
        return _Content(new=min(new, made.total), total=made.total, shape=made.shape, dim=made.dim)

    def _made(self, row: int, *, is_written_to: bool) -> _Content:
        signature, inputs = self._signature(row), self._ops.inputs[row]
        kind, spec = self._kinds[self._ops.signature_of[row]], self._table[self._ops.outputs[row][0]].spec
        total, shape = spec.elements, spec.shape
        if signature.op in _JOINS:
            dim = value_of(signature, "dim")
            along = dim % len(shape) if isinstance(dim, int) and shape and signature.op == _JOINS[0] else None
            return _Content(new=self._new_in(inputs), total=total, shape=shape, dim=along)
        if kind is Kind.FACTORY and is_written_to:  # memory set aside
            return _Content(new=0, total=total, shape=shape)
        if _name(signature) in _PUTS:
            new = self._new_in(inputs[:1]) + self._table[inputs[-1]].spec.elements
            return _Content(new=min(new, total), total=total, shape=shape)
        if kind is not Kind.COPY or not inputs:
            return _Content(new=total, total=total, shape=shape)
        origin = self.content(self._table.storage_of[inputs[0]])
        given = self._table[inputs[0]].spec
        new = -(-origin.part(given.shape, given.elements) * total // max(given.elements, 1))
        return _Content(new=new, total=total, shape=shape, dim=origin.dim if given.shape == shape else None)

    def _new_in(self, tensors: Iterable[int]) -> int:
        """The new elements of some tensors."""
        found = 0
        for tensor in tensors:
            spec = self._table[tensor].spec
            found += self.content(self._table.storage_of[tensor]).part(spec.shape, spec.elements)
        return found

    def _signature(self, row: int) -> OpSignature:
        return self._ops.signatures[self._ops.signature_of[row]]


def _name(signature: OpSignature) -> str:
    """`copy_` of aten.copy_.default."""
    return signature.op.split(".")[1]
