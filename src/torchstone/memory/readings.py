"""MemoryTimeline -> what each op's snapshot says, and each op's effect: the next snapshot minus its own."""

from array import array
from functools import cached_property

from torchstone.errors import InputError
from torchstone.record.memory import NONE, MemoryState, MemoryTimeline, MemoryType, OpFlag

_GAP_AFTER = int(OpFlag.GAP_AFTER)  # a plain number: flags are looked at a million times
UNKNOWN = -(1 << 62)  # in a column of effects: the log does not tell


class Readings:
    """One memory of a timeline, row by row."""

    def __init__(self, timeline: MemoryTimeline, memory: MemoryType) -> None:
        self._timeline = timeline
        self._memory = memory
        self.name = memory.name

    @cached_property
    def _state_of(self) -> "array[int]":
        return self._memory.state_of.values()

    @cached_property
    def _columns(self) -> tuple["array[int]", ...]:
        memory = self._memory
        return tuple(
            column.values()
            for column in (memory.banks, memory.capacity, memory.allocated, memory.free, memory.largest_free)
        )

    def state(self, snapshot: int) -> MemoryState | None:
        """The reading of a snapshot; None where the log has none."""
        row = NONE if snapshot == NONE else self._state_of[snapshot]
        if row == NONE:
            return None
        banks, capacity, allocated, free, largest = (column[row] for column in self._columns)
        return MemoryState(banks=banks, capacity=capacity, allocated=allocated, free=free, largest_free=largest)

    def of_op(self, op: int) -> MemoryState | None:
        """The reading before an op."""
        return self.state(self.snapshots[op])

    @cached_property
    def snapshots(self) -> "array[int]":
        """Each op's snapshot."""
        return self._timeline.ops.snapshots.values()

    def _by_op(self, values: "array[int]") -> "array[int]":
        by_snapshot = array("q", (NONE if row == NONE else values[row] for row in self._state_of))
        return array("q", (NONE if snapshot == NONE else by_snapshot[snapshot] for snapshot in self.snapshots))

    @cached_property
    def allocated(self) -> "array[int]":
        """Ticks per bank before each op; NONE where the log has no reading."""
        return self._by_op(self._columns[2])

    @cached_property
    def free(self) -> "array[int]":
        """Free ticks per bank before each op; NONE where the log has no reading."""
        return self._by_op(self._columns[3])

    @cached_property
    def largest_free(self) -> "array[int]":
        """Ticks of the largest free block before each op; NONE where the log has no reading."""
        return self._by_op(self._columns[4])

    @cached_property
    def effects(self) -> "array[int]":
        """What each op changed, in ticks per bank; UNKNOWN where its own or the next snapshot is missing."""
        timeline, before = self._timeline, self.allocated
        after = array("q", before[1:])
        if before:
            after.append(NONE)
        for mark in reversed(timeline.marks):  # the first mark behind an op is the next snapshot
            if mark.next_op > 0:
                row = self._state_of[mark.snapshot]
                after[mark.next_op - 1] = NONE if row == NONE else self._columns[2][row]
        effects = array(
            "q", (UNKNOWN if NONE in (own, then) else then - own for own, then in zip(before, after, strict=True))
        )
        for op, flags in enumerate(timeline.ops.flags.values()):
            if flags & _GAP_AFTER:
                effects[op] = UNKNOWN
        return effects


def readings_of(timeline: MemoryTimeline) -> dict[str, Readings]:
    """The readings of every memory, by name, in the order of the log."""
    return {memory.name: Readings(timeline, memory) for memory in timeline.memories}


def main_memory(timeline: MemoryTimeline) -> str:
    """The memory that is looked at when none is named: DRAM, else the first."""
    names = [memory.name for memory in timeline.memories]
    if not names:
        msg = f"{timeline.source} holds no memory readings; set TT_RUNTIME_MEMORY_LOG_LEVEL=any and run again"
        raise InputError(msg)
    return "DRAM" if "DRAM" in names else names[0]


def tick_bytes(timeline: MemoryTimeline, ticks: int) -> int:
    """Ticks as bytes, rounded."""
    return round(ticks * (1 << 20) / timeline.ticks_per_mib)


def spans_host(timeline: MemoryTimeline) -> list[bool]:
    """Whether an op's effect may hold what the host did, as the next snapshot belongs to another pass."""
    programs = timeline.ops.programs.values()
    passes = [run.pass_index for run in timeline.programs]
    outermost = [passes[program] for program in programs]
    closed = {mark.next_op - 1 for mark in timeline.marks}
    return [
        op not in closed and (op + 1 == len(outermost) or outermost[op + 1] != own) for op, own in enumerate(outermost)
    ]
