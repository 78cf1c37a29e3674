"""Rows of a growing trace: which belong to one module call, and how they are copied for an equal one."""

from collections.abc import Mapping
from dataclasses import dataclass

from torchstone.capture.calls import CallColumns
from torchstone.capture.ops import OpColumns
from torchstone.capture.tensors import TensorColumns

_LITERAL = "aten.lift_fresh"  # how torch.tensor([...]) hands a constant over


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The rows of one module call: from a start up to, not including, an end."""

    ops: range
    calls: range
    tensors: range
    storages: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The three tables that grow together."""

    tensors: TensorColumns
    ops: OpColumns
    calls: CallColumns

    def here(self) -> Extent:
        """An empty extent at the end of the tables."""
        return self.since(None)

    def since(self, start: Extent | None) -> Extent:
        """All rows added since an earlier end."""
        ends = (len(self.ops), len(self.calls), len(self.tensors), self.tensors.num_storages)
        starts = ends
        if start is not None:
            starts = (start.ops.stop, start.calls.stop, start.tensors.stop, start.storages.stop)
        ops, calls, tensors, storages = map(range, starts, ends)
        return Extent(ops=ops, calls=calls, tensors=tensors, storages=storages)

    def self_contained(self, extent: Extent, external: set[int], real: set[int], modules: range) -> bool:
        """Whether the rows touch only their own tensors, the external ones named, and the modules named."""
        allowed = external | set(extent.tensors)
        ops, calls = self.ops, self.calls
        if not self._written_in_code(extent).issuperset(self.tensors.constants(extent.tensors)):
            return False
        for row in extent.ops:
            if not allowed.issuperset(ops.inputs[row]) or not allowed.issuperset(ops.outputs[row]):
                return False
            if not real.isdisjoint(ops.writes.get(row, ())):
                return False
        return all(
            calls.modules[row] in modules
            and allowed.issuperset(calls.inputs[row])
            and allowed.issuperset(calls.outputs[row])
            for row in extent.calls
        )

    def _written_in_code(self, extent: Extent) -> set[int]:
        """The constants that are made anew each time the code runs."""
        ops = self.ops
        lifted = {number for number, signature in enumerate(ops.signatures) if signature.op.startswith(_LITERAL)}
        return {tensor for row in extent.ops if ops.signature_of[row] in lifted for tensor in ops.inputs[row]}


class RowCopier:
    """Copies the rows of one extent to the end of the tables, with other tensors going in."""

    def __init__(self, rows: Rows, extent: Extent, external: Mapping[int, int]) -> None:
        self._rows = rows
        self._extent = extent
        self._external = external
        self._shift = len(rows.tensors) - extent.tensors.start
        copies = range(len(rows.tensors), extent.tensors.stop + self._shift)
        self._numbers = dict(external) | dict(zip(extent.tensors, copies, strict=True))

    def renumbered(self, number: int) -> int:
        """The tensor of the copy that has the place of this one."""
        return self._numbers[number]

    def copy(self, *, module_shift: int, parent: int) -> None:
        """Append the copy; its outermost call gets the given parent."""
        op_shift = len(self._rows.ops) - self._extent.ops.start
        call_shift = len(self._rows.calls) - self._extent.calls.start
        self._copy_tensors()
        self._copy_ops(op_shift, call_shift)
        self._copy_calls(op_shift, call_shift, module_shift, parent)

    def _copy_tensors(self) -> None:
        tensors, extent = self._rows.tensors, self._extent
        first, shift = extent.storages.start, tensors.num_storages - extent.storages.start
        storages = {tensors.storage_of[old]: tensors.storage_of[new] for old, new in self._external.items()}
        rows = slice(extent.tensors.start, extent.tensors.stop)
        copied = [storage + shift if storage >= first else storages[storage] for storage in tensors.storage_of[rows]]
        tensors.extend(tensors.spec_of[rows], copied, new_storages=len(extent.storages))
        tensors.copy_constants(extent.tensors, self._shift)

    def _copy_ops(self, op_shift: int, call_shift: int) -> None:
        ops, extent = self._rows.ops, self._extent
        rows = slice(extent.ops.start, extent.ops.stop)
        ops.signature_of.extend(ops.signature_of[rows])
        ops.module_calls.extend([call + call_shift for call in ops.module_calls[rows]])
        for row in extent.ops:
            if row in ops.writes:
                (ops.writes[row + op_shift],) = self._renumber([ops.writes[row]])
        ops.inputs.extend(self._renumber(ops.inputs[rows]))
        ops.outputs.extend(self._renumber(ops.outputs[rows]))

    def _copy_calls(self, op_shift: int, call_shift: int, module_shift: int, parent: int) -> None:
        calls, extent = self._rows.calls, self._extent
        rows = slice(extent.calls.start, extent.calls.stop)
        calls.signature_of.extend(calls.signature_of[rows])
        calls.modules.extend([module + module_shift for module in calls.modules[rows]])
        calls.parents.extend([parent, *[row + call_shift for row in calls.parents[rows][1:]]])
        calls.inputs.extend(self._renumber(calls.inputs[rows]))
        calls.outputs.extend(self._renumber(calls.outputs[rows]))
        calls.first_ops.extend([op + op_shift for op in calls.first_ops[rows]])
        calls.end_ops.extend([op + op_shift for op in calls.end_ops[rows]])

    def _renumber(self, rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        new = self._numbers.__getitem__
        return [tuple(map(new, numbers)) for numbers in rows]
