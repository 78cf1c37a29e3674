"""What an analysis of a memory timeline concludes: peaks, what was alive, padding, verdicts, differences."""

from enum import StrEnum

from torchstone.record.base import Record
from torchstone.record.memory import NONE, Failure, IntColumn, MemoryState


class Peak(Record, frozen=True, kw_only=True):
    """The highest reading of one memory, the first time it was reached."""

    memory: str
    state: MemoryState
    op: int  # the state before this op; NONE: at a snapshot that belongs to no op
    mark: int = NONE  # row of MemoryTimeline.marks, where op is NONE


class Origin(StrEnum):
    """Whose a buffer is."""

    PARAMETER = "parameter"
    CONSTANT = "constant"
    INPUT = "input"
    CONST_EVAL = "const_eval"  # a weight, prepared once and kept
    ACTIVATION = "activation"


class LiveBuffer(Record, frozen=True, kw_only=True):
    """One buffer that was alive at a moment."""

    origin: Origin
    owner: str  # layer name of a weight, or the op that made it
    value: str  # %4
    op: int  # the op run that made it; NONE for arguments and what was there before
    type: int  # row of MemoryTimeline.types
    bank_bytes: int
    padded_bytes: int
    logical_bytes: int | None


class LiveSet(Record, frozen=True, kw_only=True):
    """What was alive before an op, in one memory, largest first."""

    memory: str
    op: int
    measured_bytes: int  # per bank, by the log
    buffers: tuple[LiveBuffer, ...]

    @property
    def explained_bytes(self) -> int:
        """Bytes per bank of the buffers that are known."""
        return sum(buffer.bank_bytes for buffer in self.buffers)

    @property
    def unexplained_bytes(self) -> int:
        """Bytes per bank that the log measured and no known buffer accounts for; may be negative."""
        return self.measured_bytes - self.explained_bytes

    @property
    def padded_bytes(self) -> int:
        """Bytes on the device of the buffers that are known."""
        return sum(buffer.padded_bytes for buffer in self.buffers)

    @property
    def logical_bytes(self) -> int:
        """Bytes of their elements alone."""
        return sum(
            buffer.padded_bytes if buffer.logical_bytes is None else buffer.logical_bytes for buffer in self.buffers
        )


class PaddedOp(Record, frozen=True, kw_only=True):
    """An op whose results take more memory than their elements."""

    op: int  # its first run
    runs: int
    type: int  # the worst of its results
    logical_bytes: int  # of all its results on a device
    padded_bytes: int
    reason: str

    @property
    def overhead_bytes(self) -> int:
        """What is lost."""
        return self.padded_bytes - self.logical_bytes


class Consumer(Record, frozen=True, kw_only=True):
    """An op that made memory grow."""

    op: int  # its first run with this effect
    runs: int
    memory: str
    effect_ticks: int  # per bank, measured
    expected_bytes: int | None  # per bank, from the types of its results; None where they do not say


class ModuleShare(Record, frozen=True, kw_only=True):
    """What the ops of one module hold and make."""

    path: str
    class_name: str
    ops: int  # in one pass of each graph
    made_bytes: int  # padded bytes of their results, on a device
    peak_bytes: int  # padded bytes of theirs alive at the peak


class Verdict(StrEnum):
    """Why an allocation failed."""

    CAPACITY = "capacity"  # more than is free
    FRAGMENTATION = "fragmentation"  # enough is free, but not in one block
    OVERSIZED = "oversized"  # more than a bank holds at all
    CIRCULAR_BUFFERS = "circular_buffers"  # an op's own buffers in L1 meet tensors, or do not fit
    UNCLEAR = "unclear"


class OutOfMemory(Record, frozen=True, kw_only=True):
    """The last failure of a log, understood; sizes in bytes per bank."""

    verdict: Verdict
    failure: Failure
    op: int
    needed_bytes: int | None
    free_bytes: int | None
    largest_block_bytes: int | None
    is_measured: bool  # free and largest come from the last snapshot, as the error line does not give them
    recovered: bool  # programs completed afterwards
    advice: tuple[str, ...]


class Change(StrEnum):
    """How an op of one run stands in the other."""

    SAME = "same"
    REMOVED = "removed"
    ADDED = "added"


class OpDifference(Record, frozen=True, kw_only=True):
    """One op of two aligned runs."""

    change: Change
    name: str
    text: str
    first_op: int  # in the first run; NONE where it is not there
    second_op: int
    first_effect_ticks: int | None  # per bank, in the memory compared
    second_effect_ticks: int | None


class AlignedOps(Record, frozen=True, kw_only=True):
    """Every op of both runs, aligned, as columns; NONE where a run does not have the op or its reading."""

    first_ops: IntColumn = IntColumn()
    second_ops: IntColumn = IntColumn()
    first_allocated: IntColumn = IntColumn(width_bytes=8)  # ticks per bank before the op
    second_allocated: IntColumn = IntColumn(width_bytes=8)
    texts: tuple[str, ...] = ()  # each distinct one once
    text_of: IntColumn = IntColumn()


class MemoryComparison(Record, frozen=True, kw_only=True):
    """Two runs side by side."""

    memory: str  # the effects below are in this memory
    peaks: tuple[tuple[Peak | None, Peak | None], ...]  # by memory; None where a run does not have it
    same_ops: int
    removed_ops: int
    added_ops: int
    first_difference: tuple[int, int] | None  # ops of the first and second run; None when the sequences are equal
    differences: tuple[OpDifference, ...]  # removed, added, or with another effect, in order
    first_source: str = ""
    second_source: str = ""
    ticks_per_mib: int = 1000
    rows: AlignedOps = AlignedOps()
