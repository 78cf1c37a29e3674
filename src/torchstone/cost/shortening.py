"""Leaving most blocks of each run out of a trace."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from torchstone.cost.repeats import LAST, Repeats
from torchstone.record.op import OpTable
from torchstone.record.tensor import TensorTable
from torchstone.record.trace import Trace


def shortened(trace: Trace, repeats: Repeats) -> Trace:
    """The trace with three blocks of each run; the last one uses what the one in the middle made."""
    if not repeats.runs:
        return trace
    ops = trace.ops
    rows: list[int] = []
    inputs: list[tuple[int, ...]] = []
    writes: dict[int, tuple[int, ...]] = {}
    for stretch in _left(repeats, len(ops)):
        for row in stretch.rows if ops.writes else ():
            if row in ops.writes:
                writes[len(rows) + row - stretch.rows.start] = stretch.moved(ops.writes[row])
        rows += stretch.rows
        inputs += map(stretch.moved, ops.inputs[stretch.rows.start : stretch.rows.stop])
    short = OpTable(
        signatures=ops.signatures,
        signature_of=tuple(map(ops.signature_of.__getitem__, rows)),
        inputs=tuple(inputs),
        outputs=tuple(map(ops.outputs.__getitem__, rows)),
        module_calls=tuple(map(ops.module_calls.__getitem__, rows)),
        writes=writes,
        forward_calls=len(rows),
    )
    return msgspec.structs.replace(trace, ops=short, tensors=_aliases_moved(trace.tensors, repeats))


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Op calls that are left, and the tensors of theirs that others stand in for."""

    rows: range
    replaced: range = range(0)
    shift: int = 0

    def moved(self, tensors: tuple[int, ...]) -> tuple[int, ...]:
        if not self.shift:
            return tensors
        return tuple([tensor - self.shift if tensor in self.replaced else tensor for tensor in tensors])


def _left(repeats: Repeats, rows: int) -> Iterator[_Stretch]:
    begin = 0
    for run in repeats.runs:
        yield _Stretch(range(begin, run.start + LAST * run.length))
        before_last = run.tensors.of(run.blocks - 2)
        yield _Stretch(range(run.end - run.length, run.end), before_last, run.left_out * run.tensors.step)
        begin = run.end
    yield _Stretch(range(begin, rows))


def _aliases_moved(tensors: TensorTable, repeats: Repeats) -> TensorTable:
    """Views that were made later of what the last block but one made show what stands in for it."""
    storage_of = list(tensors.storage_of)
    for run in repeats.runs:
        before_last, shift = run.storages.of(run.blocks - 2), run.left_out * run.storages.step
        later = slice(run.tensors.of(run.blocks - 1).start, None)
        storage_of[later] = [storage - shift if storage in before_last else storage for storage in storage_of[later]]
    return msgspec.structs.replace(tensors, storage_of=tuple(storage_of))
