"""What an analysis of device memory concludes: peaks, live buffers, addresses, padding, verdicts, differences."""

from enum import StrEnum
from typing import ClassVar

from torchstone.record.base import Document, Record, Schema
from torchstone.record.consistency import in_range
from torchstone.record.memory import NONE, Failure, IntColumn, MemoryState, check_columns


class Peak(Record, frozen=True, kw_only=True):
    """The highest reading of one memory, the first time it was reached."""

    memory: str
    state: MemoryState
    op: int  # the state before this op; NONE: at a snapshot that belongs to no op
    mark: int = NONE  # row of MemoryTimeline.marks, where op is NONE


class Origin(StrEnum):
    """The owner of a buffer."""

    PARAMETER = "parameter"
    CONSTANT = "constant"
    INPUT = "input"
    KV_CACHE = "kv_cache"
    CONST_EVAL = "const_eval"  # a weight, prepared once and kept
    ACTIVATION = "activation"
    OUTPUT = "output"  # of an earlier pass, which the host still refers to
    CIRCULAR_BUFFERS = "circular_buffers"  # an op's own buffers in L1, while it runs


class LiveBuffer(Record, frozen=True, kw_only=True):
    """One buffer that was live at a moment."""

    origin: Origin
    owner: str  # layer name of a weight, or the op that produced it
    value: str  # %4
    op: int  # the op run that produced it; NONE for arguments and buffers that were there before
    type: int  # row of MemoryTimeline.types
    bank_bytes: int
    padded_bytes: int
    logical_bytes: int | None


class LiveSet(Record, frozen=True, kw_only=True):
    """The buffers live before an op in one memory, largest first, and the part of the reading that has no owner.

    It always balances: explained + unexplained = measured, and none of the three is negative. `settled` makes it so.
    """

    memory: str
    op: int
    measured_bytes: int | None  # per bank, by the log; None: the log has no reading here
    buffers: tuple[LiveBuffer, ...]
    doubt: str = ""  # why buffers are not listed, or memory has no owner; "" where all is explained

    @property
    def explained_bytes(self) -> int:
        """Bytes per bank of the buffers that are known."""
        return sum(buffer.bank_bytes for buffer in self.buffers)

    @property
    def unexplained_bytes(self) -> int | None:
        """Bytes per bank that the log measured and no known buffer accounts for; None without a reading."""
        return None if self.measured_bytes is None else self.measured_bytes - self.explained_bytes

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


class PlacedBuffer(Record, frozen=True, kw_only=True):
    """A buffer at an address of a bank, for a time."""

    address: int  # from the bottom of what the allocator manages; as stated, where the source has addresses
    bank_bytes: int
    owner: str
    origin: Origin | None  # None: unknown
    from_op: int  # live before this op, and
    end_op: int  # no longer before this one


class Placement(Record, frozen=True, kw_only=True):
    """The addresses of the buffers in one memory, for the passes in which they agree with all readings."""

    memory: str
    capacity_bytes: int = 0
    blocks: tuple[PlacedBuffer, ...] = ()
    checked: int = 0  # snapshots whose largest free block is that of the replay
    passes: int = 0
    verified_passes: int = 0
    policy: str = ""  # "": not replayed
    is_ambiguous: bool = False  # uploads in another order agree with all readings, too: arguments may lie elsewhere
    reason: str = ""  # why some or all passes have no addresses


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
        """Bytes of padding."""
        return self.padded_bytes - self.logical_bytes


class Consumer(Record, frozen=True, kw_only=True):
    """An op that made memory grow."""

    op: int  # its first run with this effect
    runs: int
    memory: str
    effect_ticks: int  # per bank, measured
    expected_bytes: int | None  # per bank, from the types of its results; None where they do not say


class CoreUse(Record, frozen=True, kw_only=True):
    """What lies in the L1 of one core."""

    x: int
    y: int
    tensor_bytes: int  # at most, for tensors that are dealt out over all cores
    program_bytes: int  # circular and dataflow buffers of the program that runs


class TensorUse(Record, frozen=True, kw_only=True):
    """A tensor of a report: which op made it, and which ones read it."""

    value: str
    type: int  # row of MemoryTimeline.types
    producer: int  # op; NONE: it was there before the report begins
    consumers: tuple[int, ...]


class ModuleShare(Record, frozen=True, kw_only=True):
    """The memory that the ops of one module allocate and keep live."""

    path: str
    class_name: str
    ops: int  # in one pass of each graph
    made_bytes: int  # padded bytes of their results, on a device
    peak_bytes: int  # padded bytes of those live at the peak


class Verdict(StrEnum):
    """Why an allocation failed."""

    CAPACITY = "capacity"  # more than is free
    FRAGMENTATION = "fragmentation"  # enough is free, but not in one block
    OVERSIZED = "oversized"  # more than a bank holds at all
    CIRCULAR_BUFFERS = "circular_buffers"  # an op's own buffers in L1 meet tensors, or do not fit
    UNCLEAR = "unclear"


class Counterfactual(Record, frozen=True, kw_only=True):
    """One change to the run, replayed over its timeline; sizes in bytes per bank."""

    change: str
    memory: str
    saved_bytes: int  # before the op that failed, or at the peak
    peak_bytes: int  # the highest of all snapshots with the change
    fits: bool | None = None  # whether the failed allocation would have fit; None: it cannot be said, or none failed


class GrowthPart(Record, frozen=True, kw_only=True):
    """A part of a growth, by what it is made of."""

    kind: str
    owner: str  # the graph whose outputs are kept; "" where that is not the question
    bytes_per_pass: int  # per bank


class Growth(Record, frozen=True, kw_only=True):
    """Memory that grows with every pass of a graph."""

    memory: str
    graph: int
    passes: int  # that were looked at
    bytes_per_pass: int  # per bank
    parts: tuple[GrowthPart, ...]
    passes_left: int | None  # until the memory is full, at this rate; None where the capacity is unknown


class PassStep(Record, frozen=True, kw_only=True):
    """The change of one memory from the start of one pass to the start of the next; bytes per bank."""

    memory: str
    before: int  # rows of MemoryTimeline.programs
    after: int
    change_bytes: int
    parts: tuple[GrowthPart, ...]


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
    advice: tuple[str, ...]  # what the numbers say, then the changes below in words
    changes: tuple[Counterfactual, ...] = ()  # replayed, largest saving first


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

    def check(self) -> None:
        """Raise ValueError where columns differ in length, or a text is not there."""
        check_columns(
            len(self.first_ops.data) // 4, first_ops=self.first_ops, second_ops=self.second_ops,
            first_allocated=self.first_allocated, second_allocated=self.second_allocated, text_of=self.text_of,
        )  # fmt: skip
        in_range("text_of", self.text_of.values(), len(self.texts))


class RunSummary(Record, frozen=True, kw_only=True):
    """One of several runs that are compared."""

    source: str
    peak_ticks: dict[str, int]  # per bank, by memory
    operations: int
    passes: int
    outcome: str


class MemoryComparison(Document, frozen=True, kw_only=True):
    """Two runs side by side; with `others`, more runs beside the same first one."""

    schema: ClassVar[Schema] = Schema(kind="memory_comparison", version=1)
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
    others: tuple["MemoryComparison", ...] = ()  # the first run with the third, the fourth, ...
    runs: tuple[RunSummary, ...] = ()  # all runs, in the order in which they were given

    def check(self) -> None:
        """The columns of all comparisons are of equal length, and a first difference is one of the differences."""
        if self.ticks_per_mib < 1:
            msg = f"ticks_per_mib is {self.ticks_per_mib}"
            raise ValueError(msg)
        if self.first_difference is not None and all(row.change is Change.SAME for row in self.differences):
            msg = "first_difference is given, and differences has no op that was removed or added"
            raise ValueError(msg)
        self.rows.check()
        for other in self.others:
            other.check()
