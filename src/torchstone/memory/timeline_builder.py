"""Ops, snapshots and programs, in the order of the log -> MemoryTimeline; independent of the log format.

A snapshot is the state before its op. In the log it comes after the op's own line: op text, block header, readings. Any
of the three may be missing or damaged, so the builder pairs them as they come instead of expecting all of them.
"""

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from torchstone.errors import UnreadableFileError
from torchstone.memory.graphs import OpenRun, assign_graphs, close_run, is_misspelt_name
from torchstone.record.memory import (
    NONE,
    CacheLoads,
    CompiledModule,
    Evidence,
    Failure,
    IntColumn,
    Mark,
    MemoryState,
    MemoryTimeline,
    MemoryType,
    Moment,
    OpCall,
    OpFlag,
    OpTable,
    Role,
    TensorType,
    UnreadLine,
)

_KEPT_UNREAD = 1000
_OWN_TYPES = ("deallocate", "loadcached", "getdevice")  # op types that a single op name has
_KNOWN_SNAPSHOTS = 200_000
_CALLERS = ("LoadCachedOp", "FuncCallOp", "CaptureOrExecuteTraceOp", "ExecuteTraceOp", "CpuOp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The units of the numbers in a log."""

    ticks_per_mib: int
    row_alignment_bytes: int


class Rows(NamedTuple):
    """Ops that follow each other in one program, as columns."""

    calls: list[int]
    op_types: list[int]
    snapshots: list[int]
    lines: list[int]
    flags: list[int]


@dataclass(slots=True)
class _Memory:
    name: str
    banks: "array[int]" = field(default_factory=lambda: array("i"))
    capacity: "array[int]" = field(default_factory=lambda: array("q"))
    allocated: "array[int]" = field(default_factory=lambda: array("q"))
    free: "array[int]" = field(default_factory=lambda: array("q"))
    largest_free: "array[int]" = field(default_factory=lambda: array("q"))
    state_of: "array[int]" = field(default_factory=lambda: array("i"))

    def add(self, state: MemoryState) -> int:
        sizes = (state.capacity, state.allocated, state.free, state.largest_free)
        if max(map(abs, sizes)) >= 1 << 63 or abs(state.banks) >= 1 << 31:
            msg = f"a reading of {self.name} is larger than any memory; the log or report is damaged"
            raise UnreadableFileError(msg)
        self.banks.append(state.banks)
        self.capacity.append(state.capacity)
        self.allocated.append(state.allocated)
        self.free.append(state.free)
        self.largest_free.append(state.largest_free)
        return len(self.banks) - 1

    def packed(self) -> MemoryType:
        return MemoryType(
            name=self.name,
            banks=IntColumn.of(self.banks),
            capacity=IntColumn.of(self.capacity),
            allocated=IntColumn.of(self.allocated),
            free=IntColumn.of(self.free),
            largest_free=IntColumn.of(self.largest_free),
            state_of=IntColumn.of(self.state_of),
        )


class TimelineBuilder:
    """Collects ops, readings and program runs in the order of the log."""

    def __init__(self) -> None:
        self.calls: list[OpCall] = []
        self.op_types: list[str] = []
        self._op_type_ids: dict[str, int] = {}
        self._columns = tuple(array(code) for code in "iiiiqb")
        self.call_of, self.op_type_of, self.program_of, self.snapshot_of, self.line_of, self.flags_of = self._columns
        self._memories: list[_Memory] = []
        self._slots: dict[str, int] = {}
        self._pending: list[int] = []
        self._known_snapshots: dict[tuple[int, ...], int] = {}
        self._num_snapshots = 0
        self._open_block: Moment | int | None = None  # whose snapshot the next readings belong to
        self._open_line = 0
        self._row_waits = False  # the last row has an op text, but its block is still to come
        self.marks: list[Mark] = []
        self.runs: list[OpenRun] = []
        self._stack: list[int] = []
        self._announced, self._announced_op = "", NONE
        self._failed = False
        self._cache_key = ""
        self._load_ops, self._load_keys = array("i"), array("i")
        self._load_names: dict[str, int] = {}
        self.failures: list[Failure] = []
        self.unread: list[UnreadLine] = []
        self.unread_count = 0

    # --- Readings and snapshots ---

    def slot(self, memory: str) -> int:
        """The number of a memory type, in order of appearance."""
        known = self._slots.get(memory)
        if known is None:
            known = self._slots[memory] = len(self._memories)
            fresh = _Memory(name=memory)
            fresh.state_of.extend([NONE] * self._num_snapshots)
            self._memories.append(fresh)
            self._pending.append(NONE)
        return known

    def add_state(self, slot: int, state: MemoryState) -> int:
        """Store a reading; its row serves every equal reading that follows."""
        return self._memories[slot].add(state)

    def largest_capacity(self, memory: str) -> int:
        """The largest capacity of a bank that was read, in ticks; 0 where the memory was never read."""
        return max((size for one in self._memories if one.name == memory for size in one.capacity), default=0)

    def read_state(self, slot: int, state: int) -> bool:
        """Add one reading to the open block; False when it belongs to no block."""
        if self._open_block is None or self._pending[slot] != NONE:
            if self._open_block is not Moment.LOOSE and (self._open_block is not None or self.marks or self.call_of):
                return False
            self.close_block()
            self._open_block = Moment.LOOSE
        self._pending[slot] = state
        return True

    def open_block(self, owner: Moment | int, line: int) -> None:
        """The readings that follow belong to this op, or to no op."""
        self.close_block()
        self._open_block, self._open_line = owner, line

    def close_block(self) -> None:
        """The readings of the open block are complete, or no more will come."""
        owner, self._open_block = self._open_block, None
        if owner is None:
            return
        found = tuple(self._pending)
        self._pending = [NONE] * len(found)
        snapshot = NONE if all(state == NONE for state in found) else self._snapshot(found)
        if isinstance(owner, Moment):
            if snapshot != NONE:
                self.marks.append(
                    Mark(moment=owner, next_op=len(self.call_of), snapshot=snapshot, line=self._open_line)
                )
        else:
            self.snapshot_of[owner] = snapshot

    def _snapshot(self, states: tuple[int, ...]) -> int:
        known = self._known_snapshots.get(states)
        if known is not None:
            return known
        if len(self._known_snapshots) >= _KNOWN_SNAPSHOTS:
            self._known_snapshots.clear()
        for memory, state in zip(self._memories, states, strict=True):
            memory.state_of.append(state)
        self._known_snapshots[states] = self._num_snapshots
        self._num_snapshots += 1
        return self._num_snapshots - 1

    # --- Ops ---

    def op_type_id(self, op_type: str) -> int:
        """The number of an op type."""
        known = self._op_type_ids.get(op_type)
        if known is None:
            known = self._op_type_ids[op_type] = len(self.op_types)
            self.op_types.append(op_type)
        return known

    def add_op(self, call: int, line: int, flags: int = 0) -> None:
        """An op is about to run."""
        self.add_row(call, NONE, NONE, line, flags)
        self._row_waits = True

    def add_row(self, call: int, op_type: int, snapshot: int, line: int, flags: int) -> None:
        """A whole row at once."""
        if self._open_block is not None:
            self.close_block()
        program = self._stack[-1] if self._stack else self._start_unnamed(line)
        self.call_of.append(call)
        self.op_type_of.append(op_type)
        self.program_of.append(program)
        self.snapshot_of.append(snapshot)
        self.line_of.append(line)
        self.flags_of.append(flags)
        self._row_waits = False

    def add_rows(self, rows: Rows) -> None:
        """Many whole rows of the running program at once."""
        if self._open_block is not None:
            self.close_block()
        program = self._stack[-1] if self._stack else self._start_unnamed(rows.lines[0])
        self.call_of.fromlist(rows.calls)
        self.op_type_of.fromlist(rows.op_types)
        self.program_of.extend(array("i", [program]) * len(rows.calls))
        self.snapshot_of.fromlist(rows.snapshots)
        self.line_of.fromlist(rows.lines)
        self.flags_of.fromlist(rows.flags)
        self._row_waits = False

    def open_op_block(self, op_type: int, line: int) -> None:
        """Open the block before an op: that of the last op line, or of an op whose own line is missing."""
        self.close_block()
        if not (self._row_waits and (self.flags_of[-1] & OpFlag.UNREAD or self._agrees(self.call_of[-1], op_type))):
            self.add_row(NONE, NONE, NONE, line, 0)
        self._row_waits = False
        self.op_type_of[-1] = op_type
        self.open_block(len(self.op_type_of) - 1, line)

    def _agrees(self, call: int, op_type: int) -> bool:
        """Whether an op text and a block's op type can be the same op."""
        return not self.calls[call].name or self.type_class_of_call(call) == self.type_class(self.op_types[op_type])

    def type_class_of_call(self, call: int) -> int:
        """The class of the op type that an op text must have."""
        return self.type_class(self.calls[call].name.rpartition(".")[2])

    @staticmethod
    def type_class(name: str) -> int:
        """The class of an op name or type: many names share a type (EltwiseBinaryOp), but a few have one of their own.

        An op text and a block of different classes are not of the same op.
        """
        plain = name.removesuffix("Op").replace("_", "").lower()
        return 1 + _OWN_TYPES.index(plain) if plain in _OWN_TYPES else 0

    def flag_op(self, flag: OpFlag) -> None:
        """Set a flag on the last op."""
        if self.flags_of:
            self.flags_of[-1] |= flag

    # --- Program runs. A log has start and finish lines, but no nesting: it is derived from the calling op ---

    def start(self, name: str, line: int) -> None:
        """Start a program: nested in the op that calls it, else outermost.

        A start line without a calling op means that the open runs ended without a finish line (an exception, lines that
        were cut): they are closed as incomplete. After a failed allocation nothing is nested.
        """
        self.close_block()
        caller = self._last_own_op() if self._stack else NONE
        announced, self._announced = self._announced == name, ""
        nested = bool(self._stack) and not self._failed and (announced or self._calls_programs(caller))
        if not nested:
            self._abandon_all(line)
        is_const_eval = announced or (nested and self._op_name(caller).endswith("load_cached"))
        role = Role.CONST_EVAL if is_const_eval else Role.CALLED if nested else Role.FORWARD
        key, self._cache_key = self._cache_key if is_const_eval else "", ""
        self._push(name, role=role, line=line, parent_op=caller if nested else NONE, cache_key=key)

    def announce(self, name: str) -> None:
        """Note a cache miss: the next program of this name is a const-eval that fills the cache."""
        self._announced, self._announced_op = name, len(self.call_of) - 1 if self._stack else NONE
        if self._stack:
            self.flag_op(OpFlag.CACHE_MISS)

    def name_cache_key(self, key: str) -> None:
        """Note the cache key of the next const-eval.

        The key, not the program's name, identifies cached results: two graphs may use the same weights under one key,
        and a const-eval that runs again under its key replaces its results instead of adding to them.
        """
        self._cache_key = key
        if self._stack and self.call_of:
            self._load_ops.append(len(self.call_of) - 1)
            self._load_keys.append(self._load_names.setdefault(key, len(self._load_names)))

    def hit_cache(self) -> None:
        """Note that the last op takes its results from the cache."""
        self.flag_op(OpFlag.CACHE_HIT)
        self._cache_key = ""

    def finish(self, name: str, line: int) -> bool:
        """A program ends; False when it never began."""
        self.close_block()
        open_names = [self.runs[run].name for run in self._stack]
        if name not in open_names:
            if self._nest_announced(name, line):
                return True
            damaged = [number for number in self._stack if self.runs[number].name]
            if damaged and is_misspelt_name(self.runs[damaged[-1]].name, name):
                name = self.runs[damaged[-1]].name
                open_names.append(name)
        if name not in open_names:
            if not self._stack or self.runs[self._stack[-1]].name:
                return False
            self.runs[self._stack[-1]].name = name  # its beginning is not in the log
            self._pop(line, complete=False)
            return True
        while self._stack:
            found = self.runs[self._stack[-1]].name == name
            self._pop(line, complete=found)
            if found:
                break
        return True

    def end_const_eval(self, name: str, line: int) -> None:
        """Note that a const-eval returned: its own last line may be damaged or missing."""
        if name in [self.runs[run].name for run in self._stack[1:]]:
            self.finish(name, line)
        elif not self._nest_announced(name, line) and self.runs and not self._stack:
            last = self.runs[-1]
            if last.name == name and not last.complete and last.parent == NONE:
                last.role = Role.CONST_EVAL  # the log begins inside it

    def _nest_announced(self, name: str, line: int) -> bool:
        """Nest the ops since a cache miss in the const-eval that it announced, where its first line is missing."""
        caller = self._announced_op
        if self._announced != name or not self._stack or caller == NONE:
            return False
        first_line = self.line_of[caller + 1] if caller + 1 < len(self.line_of) else line
        parent = self.program_of[caller]
        run = OpenRun(name, Role.CONST_EVAL, parent, caller, caller + 1, first_line, self._cache_key)
        close_run(run, end_op=len(self.call_of), line=line, complete=True)
        self.runs.append(run)
        for row in range(run.first_op, run.end_op):
            self.program_of[row] = len(self.runs) - 1
        self._announced, self._announced_op, self._cache_key = "", NONE, ""
        return True

    def submit(self, moment: Moment, line: int) -> None:
        """The boundary of an outermost program run, which has a block of its own."""
        self.close_block()
        unnamed = bool(self._stack) and not self.runs[self._stack[0]].name
        if moment is Moment.AFTER_SUBMIT and unnamed:
            self._pop(line, complete=True)
        self._abandon_all(line)
        self.open_block(moment, line)

    def skip(self) -> None:
        """Note omitted lines: a snapshot after the gap says nothing about an op before it."""
        self.close_block()
        self.flag_op(OpFlag.GAP_AFTER)

    def _start_unnamed(self, line: int) -> int:
        self._push("", role=Role.FORWARD, line=line, parent_op=NONE)
        return self._stack[-1]

    def _push(self, name: str, *, role: Role, line: int, parent_op: int, cache_key: str = "") -> None:
        parent = self._stack[-1] if self._stack else NONE
        self.runs.append(OpenRun(name, role, parent, parent_op, len(self.call_of), line, cache_key))
        self._stack.append(len(self.runs) - 1)

    def _pop(self, line: int, *, complete: bool) -> None:
        close_run(self.runs[self._stack.pop()], end_op=len(self.call_of), line=line, complete=complete)

    def _abandon_all(self, line: int) -> None:
        self._failed = False
        while self._stack:
            self._pop(line - 1, complete=False)

    def _last_own_op(self) -> int:
        """The last op of the innermost open run itself."""
        top, first = self._stack[-1], self.runs[self._stack[-1]].first_op
        return next((row for row in range(len(self.call_of) - 1, first - 1, -1) if self.program_of[row] == top), NONE)

    def _op_name(self, row: int) -> str:
        return self.calls[self.call_of[row]].name if row != NONE and self.call_of[row] != NONE else ""

    def _calls_programs(self, row: int) -> bool:
        if row == NONE:
            return False
        call = self.call_of[row]
        if call != NONE and (self.calls[call].callee or "trace" in self.calls[call].name):
            return True
        op_type = self.op_type_of[row]
        return op_type != NONE and self.op_types[op_type] in _CALLERS

    # --- Failures and unread lines ---

    def fail(self, failure: Failure) -> None:
        """Add a failed allocation; the same message again, with nothing run in between, is the same failure."""
        self.close_block()
        op = self._last_own_op() if self._stack else NONE
        last = self.failures[-1] if self.failures else None
        if last is not None and last.message == failure.message and self._failed:
            return
        self.failures.append(msgspec.structs.replace(failure, op=op))
        self._failed = True

    def add_unread(self, line: int, text: str, reason: str) -> None:
        """Keep a line that could not be read."""
        self.unread_count += 1
        if len(self.unread) < _KEPT_UNREAD:
            self.unread.append(UnreadLine(line=line, text=text[:300], reason=reason))

    # --- The finished timeline ---

    def build(
        self,
        *,
        dialect: str,
        types: list[TensorType],
        modules: list[CompiledModule],
        evidence: Evidence,
        scale: Scale,
    ) -> MemoryTimeline:
        """The timeline of everything added so far."""
        self.close_block()
        self._abandon_all(evidence.lines + 1)
        programs, graphs = assign_graphs(self.runs, self, types=types, modules=modules)
        columns = dict(
            zip(
                ("calls", "op_types", "programs", "snapshots", "lines", "flags"),
                map(IntColumn.of, self._columns),
                strict=True,
            )
        )
        return MemoryTimeline(
            dialect=dialect,
            ticks_per_mib=scale.ticks_per_mib,
            row_alignment_bytes=scale.row_alignment_bytes,
            memories=tuple(memory.packed() for memory in self._memories),
            ops=OpTable(**columns),
            calls=tuple(self.calls),
            op_types=tuple(self.op_types),
            types=tuple(types),
            marks=tuple(self.marks),
            programs=programs,
            graphs=graphs,
            modules=tuple(modules),
            cache_loads=CacheLoads(
                ops=IntColumn.of(self._load_ops), keys=IntColumn.of(self._load_keys), names=tuple(self._load_names)
            ),
            failures=tuple(self.failures),
            unread=tuple(self.unread),
            unread_count=self.unread_count,
            evidence=evidence,
        )
