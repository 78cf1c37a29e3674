"""A trace in which most copies of a repeat are left out, and how what is worked out on it holds for the whole one.

A run is the stretch that a repeat copies and all copies of it: blocks that do the same, one after another. In a short
trace only the first block, the one after it and the last one are left. The one in the middle stands for all that are
left out: each of its op calls counts that number of times, and so does memory that a block owns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.cost.boundary_tensors import Ends
from torchstone.record.trace import Trace

FIRST, MIDDLE, LAST = 0, 1, 2  # the blocks that are left


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Rows or numbers of the blocks that are left, one block after another."""

    start: int
    step: int  # how many a block

    def of(self, block: int) -> range:
        """Those of one block."""
        start = self.start + block * self.step
        return range(start, start + self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Blocks of op calls that are copies of each other; all numbers are those of the short trace."""

    ops: Stretch
    calls: Stretch
    tensors: Stretch
    storages: Stretch
    left_out: int  # blocks
    module_step: int
    own: tuple[tuple[int, int], ...] = ()  # memory that was there before: the middle's piece, the step to the next one

    def own_of(self, copies: range) -> list[int]:
        """The pieces of some blocks, counted from the middle one; those of constants made in a block have no step."""
        return [middle + step * copy for middle, step in self.own for copy in copies]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one block of a run leaves behind for good, and what it is the last to use."""

    kept: int = 0
    freed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An op call of the whole trace, in a short one."""

    row: int  # the op call that is left for it
    before: tuple[int, ...]  # for each run, how many of the blocks left out ran before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """A trace with its runs; without any, it is the whole one."""

    trace: Trace
    ends: Ends
    runs: tuple[Run, ...] = ()

    def times_of_rows(self) -> list[int]:
        """How many op calls of the whole trace each one stands for."""
        times = [1] * len(self.trace.ops)
        for run in self.runs:
            rows = run.ops.of(MIDDLE)
            times[rows.start : rows.stop] = [run.left_out + 1] * len(rows)
        return times

    def times_of_storages(self) -> dict[int, int]:
        """The pieces of memory that stand for more than one."""
        return {
            storage: run.left_out + 1
            for run in self.runs
            for storage in (*run.storages.of(MIDDLE), *run.own_of(range(1)))
        }

    def storages_left_out(self) -> set[int]:
        """Memory that was there before and is used only in blocks left out."""
        return {
            middle + step * copy
            for run in self.runs
            for middle, step in run.own
            if step
            for copy in range(1, run.left_out + 1)
        }

    def spread(self, held: Sequence[int], changes: Sequence[Change]) -> list[int]:
        """Bytes held at each op call of the whole trace, from those at each one of the short trace.

        What a block keeps is added once for each block left out that ran before; what a block is the last to use is
        held until then, so it is added once for each one that did not run yet.
        """
        more = sum(run.left_out * change.freed for run, change in zip(self.runs, changes, strict=True))
        found: list[int] = []
        begin = 0
        for run, change in zip(self.runs, changes, strict=True):
            middle = run.ops.of(MIDDLE)
            found += _raised(held[begin : middle.start], more)
            block = _raised(held[middle.start : middle.stop], more)
            growth = change.kept - change.freed
            if growth:
                for repeat in range(run.left_out + 1):
                    found += _raised(block, repeat * growth)
            else:
                found += block * (run.left_out + 1)
            more += run.left_out * growth
            begin = middle.stop
        return found + _raised(held[begin:], more)

    def moment(self, index: int) -> Moment:
        """Where an op call of the whole trace stands."""
        row = index
        before = []
        for run in self.runs:
            past = row - run.ops.of(MIDDLE).start
            gone = min(max(past // run.ops.step, 0), run.left_out)
            before.append(gone)
            row -= gone * run.ops.step
        return Moment(row=row, before=tuple(before))

    def path_at(self, row: int, moment: Moment, *, handed_on: bool = True) -> str:
        """The module that an op call ran in, as it is at a moment.

        In the middle block's place many blocks ran, one after another. When it stands for the tenth, the first block
        stands for the ninth: for what that one handed on, not for what it keeps.
        """
        trace = self.trace
        call = trace.ops.module_calls[row]
        if call < 0:
            return ""
        shift = 0
        for run, gone in zip(self.runs, moment.before, strict=True):
            if row in run.ops.of(MIDDLE) and call in run.calls.of(MIDDLE):
                shift = gone * run.module_step
            elif handed_on and gone and row in run.ops.of(FIRST) and moment.row in run.ops.of(MIDDLE):
                call = call + run.calls.step if call in run.calls.of(FIRST) else call
                shift = (gone - 1) * run.module_step if call in run.calls.of(MIDDLE) else 0
        return trace.modules[trace.module_calls.modules[call] + shift].path

    def path_in_copy(self, row: int, module_shift: int) -> str:
        """The module that an op call of a middle block ran in, in another block that it stands for."""
        call = self.trace.ops.module_calls[row]
        inside = any(call in run.calls.of(MIDDLE) for run in self.runs)
        module = self.trace.module_calls.modules[call] + (module_shift if inside else 0) if call >= 0 else 0
        return self.trace.modules[module].path if call >= 0 else ""


def _raised(values: Sequence[int], by: int) -> list[int]:
    return [value + by for value in values] if by else list(values)
