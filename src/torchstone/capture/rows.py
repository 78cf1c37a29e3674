"""Rows of a growing trace: which belong to one module call, and where copies of them stand."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.capture.ops import OpColumns
from torchstone.capture.tables import CallColumns, TensorColumns
from torchstone.record.repeats import Place

# A module call that is reused adds no rows. It is noted as a `Copy`, and the numbers that its op calls, module calls,
# tensors and storages would have had are left to it. When the trace is finished, copies become `Repeat` records.


_LITERAL = "aten.lift_fresh"  # how torch.tensor([...]) hands a constant over


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The rows of one module call: from a start up to, not including, an end."""

    start: Place
    end: Place
    ops: range  # of the op calls that ran
    calls: range  # of the module calls that ran
    copies: range  # of the copies

    @property
    def tensors(self) -> range:
        """The tensors made in it."""
        return range(self.start.tensor, self.end.tensor)

    @property
    def storages(self) -> range:
        """The memory made in it."""
        return range(self.start.storage, self.end.storage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Tensors that a stretch of rows uses and did not make."""

    tensors: tuple[int, ...]
    written: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A module call that ran, of which there are copies."""

    extent: Extent
    used: Used
    module: int
    parent: int
    site: int  # the line it was called from


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A module call that is a copy of one that ran."""

    original: Original
    at: Place
    external: Mapping[int, int]  # for each tensor that the original uses and did not make, the one used here
    module: int
    parent: int
    site: int  # the line it was called from


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The three tables that grow together, and the copies of what is in them."""

    tensors: TensorColumns
    ops: OpColumns
    calls: CallColumns
    copies: list[Copy] = field(default_factory=list)

    def place(self) -> Place:
        """The end of the tables."""
        return Place(
            op=len(self.ops), call=len(self.calls), tensor=len(self.tensors), storage=self.tensors.num_storages
        )

    def here(self) -> Extent:
        """An empty extent at the end of the tables."""
        return self.since(None)

    def since(self, start: Extent | None) -> Extent:
        """All rows added since an earlier end."""
        place = self.place()
        ends = (len(self.ops.signature_of), len(self.calls.numbers), len(self.copies))
        starts = ends if start is None else (start.ops.stop, start.calls.stop, start.copies.stop)
        ops, calls, copies = map(range, starts, ends)
        return Extent(start=place if start is None else start.end, end=place, ops=ops, calls=calls, copies=copies)

    def used(self, extent: Extent, external: set[int], real: set[int], modules: range) -> Used | None:
        """What the rows use; None where that is more than the tensors and modules named, or real memory is written."""
        ops, calls = self.ops, self.calls
        constants = self.tensors.constants(extent.tensors)
        if constants and not self._written_in_code(extent).issuperset(constants):
            return None
        storage_of, first = self.tensors.storage_of, extent.start.storage
        shared = {storage_of[one] for one in self.tensors.views(extent.tensors) if storage_of[one] < first}
        if not shared.issubset(map(storage_of.__getitem__, external)):
            return None
        touched: set[int] = set()
        touched.update(*ops.inputs[extent.ops.start : extent.ops.stop])
        touched.update(*ops.outputs[extent.ops.start : extent.ops.stop])
        ran = calls.numbers[extent.calls.start : extent.calls.stop]
        for row in ran:
            touched.update(calls.inputs[row], calls.outputs[row])
        called = [calls.modules[row] for row in ran]
        written = self._written(extent)
        for copy in self.copies[extent.copies.start : extent.copies.stop]:
            touched.update(copy.external.values())
            called.append(copy.module)
        foreign = {number for number in touched if number < extent.start.tensor}
        if not external.issuperset(foreign) or not written.isdisjoint(real):
            return None
        if not all(map(modules.__contains__, called)):
            return None
        return Used(tensors=tuple(sorted(foreign)), written=frozenset(written & foreign))

    def _written(self, extent: Extent) -> set[int]:
        """The tensors that op calls change in place, those of copies among them."""
        ops = self.ops
        written = {
            tensor
            for row in range(extent.start.op, extent.end.op) if ops.writes and row in ops.writes
            for tensor in ops.writes[row]
        }  # fmt: skip
        for copy in self.copies[extent.copies.start : extent.copies.stop]:
            written.update(copy.external[tensor] for tensor in copy.original.used.written)
        return written

    def _written_in_code(self, extent: Extent) -> set[int]:
        """The constants that are made anew each time the code runs."""
        ops = self.ops
        lifted = {number for number, signature in enumerate(ops.signatures) if signature.op.startswith(_LITERAL)}
        return {tensor for row in extent.ops if ops.signature_of[row] in lifted for tensor in ops.inputs[row]}

    def add_copy(self, copy: Copy) -> None:
        """Note a copy at the end of the tables, and leave its numbers to it."""
        extent = copy.original.extent
        length = extent.end.plus(extent.start, -1)
        self.copies.append(copy)
        self.ops.copied += length.op
        self.calls.copied += length.call
        self.tensors.leave_numbers(length.tensor, length.storage)

    def storage_in_copy(self, copy: Copy, tensor: int) -> int:
        """Where the counterpart of a tensor of the original lies."""
        storage_of, extent = self.tensors.storage_of, copy.original.extent
        storage = storage_of[tensor]
        if storage >= extent.start.storage:
            return storage + copy.at.storage - extent.start.storage
        shared = {storage_of[old]: storage_of[new] for old, new in copy.external.items()}
        return shared[storage]
