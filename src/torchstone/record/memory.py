"""Device memory over time as a runtime log or a report states it."""

from array import array
from collections.abc import Sequence
from enum import IntFlag, StrEnum
from typing import Annotated, ClassVar, Literal

import msgspec

from torchstone.record.base import Document, Record, Schema
from torchstone.record.consistency import distinct, in_range
from torchstone.units import many

# Device memory over time, as a runtime's log tells it: op runs, snapshots, programs, graphs, and what was not read. A
# snapshot is the state *before* its op. Sizes of snapshots are per bank and counted in ticks, the log's own
# resolution (`ticks_per_mib` ticks are one MiB), so that no digit is invented and none is lost. -1 stands for "none"
# in a column.


NONE = -1  # in a column: there is no such row, or the log does not say
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]  # what a column holds; no memory has more bytes


class IntColumn(Record, frozen=True, kw_only=True):
    """Whole numbers, packed: a million of them take four or eight megabytes, little-endian."""

    width_bytes: Count = 4
    data: bytes = b""

    @staticmethod
    def of(numbers: Sequence[int], *, width_bytes: int = 4) -> "IntColumn":
        """Pack numbers."""
        packed = numbers if isinstance(numbers, array) else array(_code(width_bytes), numbers)
        return IntColumn(width_bytes=packed.itemsize, data=packed.tobytes())

    def values(self) -> "array[int]":
        """The numbers, unpacked once for many reads."""
        return array(_code(self.width_bytes), self.data)

    def __len__(self) -> int:
        return len(self.data) // self.width_bytes


_WIDTHS = (1, 4, 8)


def _code(width_bytes: int) -> Literal["b", "i", "q"]:
    match width_bytes:
        case 1:
            return "b"
        case 4:
            return "i"
        case _:
            return "q"


def check_columns(length: int, **columns: IntColumn) -> None:
    """Columns that can be unpacked, of one length."""
    for name, column in columns.items():
        if column.width_bytes not in _WIDTHS or len(column.data) != length * column.width_bytes:
            msg = f"{name} has {len(column.data)} bytes, not {length} numbers of {column.width_bytes} bytes"
            raise ValueError(msg)


class MemoryState(Record, frozen=True, kw_only=True):
    """One reading of one memory type: banks, and ticks per bank."""

    banks: int
    capacity: int
    allocated: int
    free: int
    largest_free: int

    @property
    def fragmentation(self) -> float | None:
        """The share of the free space outside its largest block; None when nothing is free."""
        return None if self.free <= 0 else 1 - self.largest_free / self.free


class MemoryType(Record, frozen=True, kw_only=True):
    """One kind of device memory, under the name the log gives it, with its readings as columns."""

    name: str  # DRAM, L1, L1_SMALL, TRACE
    banks: IntColumn = IntColumn()
    capacity: IntColumn = IntColumn(width_bytes=8)
    allocated: IntColumn = IntColumn(width_bytes=8)
    free: IntColumn = IntColumn(width_bytes=8)
    largest_free: IntColumn = IntColumn(width_bytes=8)
    state_of: IntColumn = IntColumn()  # snapshot -> row of the columns above; NONE: its line is missing

    def check(self) -> None:
        """Raise ValueError where columns differ in length, or a snapshot is of a row that is not there."""
        name, rows = self.name, len(self.allocated.data) // 8
        check_columns(
            rows, banks=self.banks, capacity=self.capacity, allocated=self.allocated, free=self.free,
            largest_free=self.largest_free,
        )  # fmt: skip
        check_columns(len(self.state_of.data) // max(self.state_of.width_bytes, 1), state_of=self.state_of)
        in_range(f"snapshots of {name}", self.state_of.values(), rows, start=NONE)


class Buffer(Record, frozen=True, kw_only=True):
    """How a tensor lies in a memory."""

    memory: str  # DRAM, L1, ...; "host" for host memory
    dtype: str  # of the stored elements, which may differ from the tensor's
    tiled: bool
    sharding: str  # interleaved, height_sharded, ...; "" where the log does not say
    padded_bytes: Count  # on one device
    page_bytes: Count  # a tile, or a row without its alignment
    pages: Count  # of the whole tensor, or of one shard where it is sharded

    @property
    def is_sharded(self) -> bool:
        """Whether each core holds one shard, instead of pages dealt out over all banks."""
        return self.sharding.endswith("sharded")

    def bank_bytes(self, *, banks: int, row_alignment_bytes: int = 32) -> int:
        """Bytes this buffer takes in the fullest bank."""
        page_bytes = self.page_bytes if self.tiled else -(-self.page_bytes // row_alignment_bytes) * row_alignment_bytes
        if self.is_sharded:
            return self.pages * page_bytes
        return -(-self.pages // max(banks, 1)) * page_bytes


class TensorType(Record, frozen=True, kw_only=True):
    """A tensor type as the log spells it, read as far as it is understood."""

    text: str  # short: 1x1000x512x2xf32, or a type that is no tensor
    shape: tuple[Count, ...] | None = None  # None: not a ranked tensor with known sizes
    dtype: str = ""
    logical_bytes: Count | None = None  # the elements alone, in the stored element type
    buffer: Buffer | None = None  # None: the type names no layout


class OpCall(Record, frozen=True, kw_only=True):
    """One distinct op text; the same op of the next pass is the same call."""

    name: str  # ttnn.add; "" where only the op type is known
    results: tuple[str, ...] = ()  # %4, %query, %0#1
    operands: tuple[str, ...] = ()
    result_types: tuple[int, ...] = ()  # rows of MemoryTimeline.types
    operand_types: tuple[int, ...] = ()
    callee: str = ""  # the program it calls: main_const_eval_0
    details: str = ""  # properties and attributes, as printed
    location: str = ""  # what stands inside loc(...)

    def __str__(self) -> str:
        results = f"{', '.join(self.results)} = " if self.results else ""
        callee = f"@{self.callee}, " if self.callee and self.operands else f"@{self.callee}" if self.callee else ""
        return f"{results}{self.name}({callee}{', '.join(self.operands)})"


class OpFlag(IntFlag):
    """What the log says about one run of an op beside its text and memory."""

    RETAINED = 1  # a deallocate that freed nothing, as the tensor is retained
    CACHE_HIT = 2
    CACHE_MISS = 4
    UNREAD = 8  # its line is there and could not be read as a whole
    GAP_AFTER = 16  # lines are missing after this op: its effect is unknown


class OpTable(Record, frozen=True, kw_only=True):
    """Every op that ran, in order, as columns."""

    calls: IntColumn = IntColumn()  # row of MemoryTimeline.calls; NONE: the log has no op lines
    op_types: IntColumn = IntColumn()  # row of MemoryTimeline.op_types; NONE: no memory block
    programs: IntColumn = IntColumn()  # row of MemoryTimeline.programs
    snapshots: IntColumn = IntColumn()  # NONE: no memory block
    lines: IntColumn = IntColumn(width_bytes=8)
    flags: IntColumn = IntColumn(width_bytes=1)

    def check(self) -> None:
        """Raise ValueError where columns differ in length."""
        check_columns(
            len(self.calls.data) // 4, calls=self.calls, op_types=self.op_types, programs=self.programs,
            snapshots=self.snapshots, lines=self.lines, flags=self.flags,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.calls)


class Moment(StrEnum):
    """When a snapshot was taken that belongs to no op."""

    BEFORE_SUBMIT = "before submit"
    AFTER_SUBMIT = "after submit"
    LOOSE = "on its own"


class Mark(Record, frozen=True, kw_only=True):
    """A snapshot that belongs to no op."""

    moment: Moment
    next_op: int  # it stands before this op's line
    snapshot: int
    line: int


class Role(StrEnum):
    """Why a program ran."""

    FORWARD = "forward"
    CONST_EVAL = "const_eval"
    CALLED = "called"


class ProgramRun(Record, frozen=True, kw_only=True):
    """One run of one program; names repeat, runs do not."""

    name: str  # "" where the log has no program lines
    role: Role
    parent: int  # row of the run it is nested in
    parent_op: int  # the op that called it
    first_op: int
    end_op: int  # first op after it; nested ops lie between
    first_line: int
    last_line: int
    complete: bool  # its end is in the log
    pass_index: int = NONE  # number of the outermost run, without const-evals that stand alone
    graph: int = NONE  # of the outermost run
    cache_key: str = ""  # hash of a const-eval, where the log names it


class CacheLoads(Record, frozen=True, kw_only=True):
    """The hash under which each op took its results from the cache of const-evals, or filled it."""

    ops: IntColumn = IntColumn()
    keys: IntColumn = IntColumn()  # rows of `names`
    names: tuple[str, ...] = ()


class Graph(Record, frozen=True, kw_only=True):
    """A compiled graph, identified by its op sequence because names collide."""

    name: str
    runs: tuple[int, ...]  # rows of MemoryTimeline.programs, complete or not
    module: int = NONE  # row of MemoryTimeline.modules


class ArgumentKind(StrEnum):
    """What an argument of a graph is."""

    PARAMETER = "parameter"
    CONSTANT = "constant"
    INPUT = "input"


class GraphArgument(Record, frozen=True, kw_only=True):
    """One argument of a compiled graph."""

    value: str  # %arg0
    name: str  # layer name; "" where the compiler gave none
    kind: ArgumentKind
    type: int  # row of MemoryTimeline.types
    local_shape: tuple[Count, ...] | None = None  # on one chip, where the module says so
    size_bytes: Count | None = None  # logical, on one chip
    is_kv_cache: bool = False


class CompiledModule(Record, frozen=True, kw_only=True):
    """What a module dump says about one graph."""

    name: str
    stage: str  # ttnn, shlo_frontend
    function: str
    arguments: tuple[GraphArgument, ...] = ()
    heads: bytes = b""  # a short digest per op of results, name and operands: finds the graph that ran
    shapes: bytes = b""  # the same with the shapes of operands and results


class FailureKind(StrEnum):
    """How the device ran out."""

    OUT_OF_MEMORY = "out_of_memory"
    CIRCULAR_BUFFERS = "circular_buffers"


class Failure(Record, frozen=True, kw_only=True):
    """An allocation that failed; sizes in bytes per bank, as the error line gives them."""

    kind: FailureKind
    op: int  # NONE: no program was running, such as during a transfer of inputs
    line: int
    message: str
    memory: str = ""
    banks: int | None = None
    buffer_bytes: Count | None = None  # over all banks
    needed_bytes: Count | None = None
    bank_bytes: Count | None = None
    free_bytes: Count | None = None
    largest_block_bytes: Count | None = None
    static_buffers_end: int | None = None  # address in L1 up to which an op's circular or dataflow buffers reach
    tensor_start: int | None = None  # address in L1 of the lowest tensor that they meet
    cores: str = ""  # where, as the runtime prints it


class UnreadLine(Record, frozen=True, kw_only=True):
    """A line that claims to be the runtime's and could not be read."""

    line: int
    text: str  # shortened
    reason: str


class CoreRange(Record, frozen=True, kw_only=True):
    """A rectangle of cores, both corners included."""

    left: int
    top: int
    right: int
    bottom: int


class CoreBuffer(Record, frozen=True, kw_only=True):
    """A circular or dataflow buffer of a program, on some cores while it runs."""

    op: int
    bank_bytes: Count
    cores: tuple[CoreRange, ...]
    kind: str  # circular, dataflow


class Allocation(Record, frozen=True, kw_only=True):
    """One buffer whose address and lifetime a report states, so that nothing about it has to be derived."""

    memory: str
    address: int
    bank_bytes: Count
    type: int  # row of MemoryTimeline.types
    owner: str  # the tensor, or the op whose own buffer it is
    value: str = ""  # the tensor's name in the calls; "" for a buffer that is no tensor
    made_by: int = NONE  # op
    from_op: int  # live before this op, and
    end_op: int  # no longer before this one; the number of ops where it is never freed
    last_use: int = NONE  # the last op that reads it
    cores: tuple[CoreRange, ...] = ()  # that hold a shard of it; empty: it is dealt out over all


class Evidence(Record, frozen=True, kw_only=True):
    """What kinds of lines the log holds: from it follows what was not switched on."""

    lines: Count = 0
    size_bytes: Count = 0
    runtime_lines: Count = 0  # of the runtime at any level
    op_lines: Count = 0
    op_blocks: Count = 0
    submit_blocks: Count = 0
    program_lines: Count = 0
    framework_lines: Count = 0  # of the layers around the runtime
    module_dumps: Count = 0
    shortened_lines: Count = 0  # too long to be kept whole; none of them is an op line
    ends_mid_line: bool = False
    ranks: tuple[str, ...] = ()  # processes of a multi-host run found in the log
    rank: str = ""  # the one this timeline is about


class MemoryTimeline(Document, frozen=True, kw_only=True):
    """Everything one log says about device memory."""

    schema: ClassVar[Schema] = Schema(kind="memory_timeline", version=1)
    dialect: str
    source: str = ""
    ticks_per_mib: int = 1000
    row_alignment_bytes: Count = 32
    memories: tuple[MemoryType, ...] = ()
    ops: OpTable = OpTable()
    calls: tuple[OpCall, ...] = ()
    op_types: tuple[str, ...] = ()
    types: tuple[TensorType, ...] = ()
    marks: tuple[Mark, ...] = ()
    programs: tuple[ProgramRun, ...] = ()
    graphs: tuple[Graph, ...] = ()
    modules: tuple[CompiledModule, ...] = ()
    cache_loads: CacheLoads = CacheLoads()
    failures: tuple[Failure, ...] = ()
    unread: tuple[UnreadLine, ...] = ()  # the first ones; unread_count is exact
    unread_count: Count = 0
    evidence: Evidence = Evidence()
    core_buffers: tuple[CoreBuffer, ...] = ()  # where the source states them
    core_grid: tuple[int, int] | None = None  # columns and rows of compute cores; None: unknown
    allocations: tuple[Allocation, ...] = ()  # where the source states buffers; empty for logs, which do not

    def check(self) -> None:
        """Columns have equal lengths, and every number is of a row that is there."""
        if not (1 <= self.ticks_per_mib <= 1 << 62 and 1 <= self.row_alignment_bytes <= 1 << 62):
            msg = f"ticks_per_mib is {self.ticks_per_mib} and row_alignment_bytes is {self.row_alignment_bytes}"
            raise ValueError(msg)
        distinct("memories", [memory.name for memory in self.memories])
        for memory in self.memories:
            memory.check()
        self.ops.check()
        ops, snapshots = len(self.ops), min((len(memory.state_of) for memory in self.memories), default=0)
        in_range("calls", self.ops.calls.values(), len(self.calls), start=NONE)
        in_range("op_types", self.ops.op_types.values(), len(self.op_types), start=NONE)
        in_range("programs", self.ops.programs.values(), len(self.programs), start=NONE)
        in_range("snapshots", self.ops.snapshots.values(), snapshots, start=NONE)
        for call in self.calls:
            in_range("types of calls", (*call.result_types, *call.operand_types), len(self.types))
        self._check_runs(ops, snapshots)
        self._check_arguments()
        check_columns(len(self.cache_loads.ops), ops=self.cache_loads.ops, keys=self.cache_loads.keys)
        in_range("ops of cache_loads", self.cache_loads.ops.values(), ops)
        in_range("keys of cache_loads", self.cache_loads.keys.values(), len(self.cache_loads.names))
        in_range("ops of failures", [one.op for one in self.failures], ops, start=NONE)

    def _check_runs(self, ops: int, snapshots: int) -> None:
        for number, run in enumerate(self.programs):
            if not (NONE <= run.parent < number and 0 <= run.first_op <= run.end_op <= ops):
                msg = f"run {number} has the parent {run.parent} and the ops {run.first_op} to {run.end_op}"
                raise ValueError(msg)
            in_range("parent_op of runs", [run.parent_op], ops, start=NONE)
            in_range("graphs of runs", [run.graph], len(self.graphs), start=NONE)
            in_range("passes of runs", [run.pass_index], len(self.programs), start=NONE)
        for op, number in enumerate(self.ops.programs.values()):
            if number != NONE and not self.programs[number].first_op <= op < self.programs[number].end_op:
                msg = f"op {op} is outside the run {number} that it belongs to"
                raise ValueError(msg)
        for graph in self.graphs:
            in_range("runs of graphs", graph.runs, len(self.programs))
            in_range("modules of graphs", [graph.module], len(self.modules), start=NONE)
        in_range("next_op of marks", [mark.next_op for mark in self.marks], ops + 1, start=NONE)
        in_range("snapshots of marks", [mark.snapshot for mark in self.marks], snapshots, start=NONE)

    def _check_arguments(self) -> None:
        ops, types = len(self.ops), len(self.types)
        for module in self.modules:
            in_range("types of arguments", [one.type for one in module.arguments], types, start=NONE)
        in_range("ops of core_buffers", [one.op for one in self.core_buffers], ops)
        for one in self.allocations:
            in_range("types of allocations", [one.type], types, start=NONE)
            in_range("ops of allocations", [one.made_by, one.last_use], ops, start=NONE)
            in_range("ops of allocations", [one.from_op, one.end_op], ops + 1)

    @property
    def passes(self) -> int:
        """How often a graph ran."""
        return 1 + max((run.pass_index for run in self.programs), default=NONE)

    def _repr_html_(self) -> str:
        """The highest reading of each memory, for a notebook; an empty cell where the log has none."""
        from torchstone.record.notebook import html_table

        rows = []
        for memory in self.memories:
            readings = zip(memory.allocated.values(), memory.capacity.values(), memory.banks.values(), strict=True)
            allocated, capacity, banks = max(readings, default=(NONE, NONE, NONE))
            known = allocated != NONE
            rows.append(
                (
                    memory.name,
                    f"{allocated / self.ticks_per_mib:.3f}" if known else "",
                    f"{capacity / self.ticks_per_mib:.3f}" if known and capacity != NONE else "",
                    str(banks) if known and banks != NONE else "",
                )
            )
        title = (
            f"{self.source or self.dialect}: {many(len(self.ops), 'operation')}, {many(self.passes, 'pass', 'passes')}"
        )
        unread = [f"{many(self.unread_count, 'line')} could not be read"] if self.unread_count else []
        return html_table(title, ("memory", "peak MiB per bank", "capacity MiB per bank", "banks"), rows, notes=unread)
