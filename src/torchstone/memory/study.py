"""A timeline prepared for analysis: readings and effects per op, and the owners of arguments and cached results."""

from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from torchstone.errors import InputError
from torchstone.record.memory import (
    NONE,
    ArgumentKind,
    Buffer,
    GraphArgument,
    MemoryState,
    MemoryTimeline,
    MemoryType,
    OpCall,
    OpFlag,
    ProgramRun,
    Role,
)
from torchstone.record.memory_findings import Origin

T = TypeVar("T")

# --- Owners of arguments and cached results: from SSA operands and the registry, never from shapes ---
#
# A load_cached op takes arguments (weights) and returns what a const-eval made of them. The runtime runs the const-eval
# once and caches its results under a key; later passes only load them. So the results belong to the weights among the
# operands, and two loads with the same key refer to the same buffers, even in different graphs.


_ORIGINS = {
    ArgumentKind.PARAMETER: Origin.PARAMETER,
    ArgumentKind.CONSTANT: Origin.CONSTANT,
    ArgumentKind.INPUT: Origin.INPUT,
}


@dataclass(frozen=True, slots=True)
class CachedResults:
    """The results of one const-eval, which stay on the device from one op on."""

    run: int  # row of the const-eval's run; NONE: it ran before the log begins
    from_op: int
    call: OpCall  # the load_cached whose results they are
    owner: str
    key: str  # equal keys are the same buffers


class Owners:
    """Looks up owners in one timeline."""

    def __init__(self, timeline: MemoryTimeline) -> None:
        self._timeline = timeline
        self._calls = timeline.ops.calls.values()
        self._programs = timeline.ops.programs.values()
        self._registries: dict[int, dict[str, GraphArgument]] = {}

    def registry(self, graph: int) -> dict[str, GraphArgument]:
        """The arguments of a graph by SSA name, empty without a module dump."""
        if graph not in self._registries:
            module = NONE if graph == NONE else self._timeline.graphs[graph].module
            found = () if module == NONE else self._timeline.modules[module].arguments
            self._registries[graph] = {one.value: one for one in found}
        return self._registries[graph]

    def argument(self, graph: int, value: str) -> tuple[Origin, str]:
        """The origin and name of an argument; without a dump it is an input named by its position."""
        found = self.registry(graph).get(value)
        if found is None:
            return Origin.INPUT, f"{value} of graph {graph}"
        origin = Origin.KV_CACHE if found.is_kv_cache else _ORIGINS[found.kind]
        return origin, found.name or f"{value} of graph {graph}"

    def cached(self, call: OpCall, graph: int) -> str:
        """The owner of the results of a load_cached."""
        names = [self.argument(graph, value)[1] for value in call.operands]
        return f"const-eval of {', '.join(names)}" if names else f"const-eval {call.callee}"

    @cached_property
    def cached_results(self) -> tuple[CachedResults, ...]:
        """The results of all const-evals, in the order they ended; a later one replaces an earlier one of equal key.

        Results that the log only loads were made before it begins: they have no run, and are there from the first pass
        that loads them.
        """
        found = []
        for number, run in enumerate(self._timeline.programs):
            if run.role is Role.CONST_EVAL and (run.complete or run.parent_op != NONE):
                call = self._caller(run)
                if call is not None:
                    owner = self.cached(call, run.graph)
                    found.append(CachedResults(number, run.end_op, call, owner, self._fill_key(run)))
        return tuple(sorted([*found, *self._loaded_only({one.key for one in found})], key=lambda one: one.from_op))

    @cached_property
    def cached_by_run(self) -> dict[int, CachedResults]:
        """The results of each const-eval run."""
        return {one.run: one for one in self.cached_results if one.run != NONE}

    def _loaded_only(self, filled: set[str]) -> list[CachedResults]:
        first: dict[str, CachedResults] = {}
        is_load = [call.name.endswith(".load_cached") for call in self._timeline.calls]
        for op, call_row in enumerate(self._calls):
            if call_row == NONE or not is_load[call_row]:
                continue
            call = self._timeline.calls[call_row]
            key = self.hit_key(op, call)
            if key not in filled and key not in first:
                run = self._timeline.programs[outermost_run(self._timeline.programs, self._programs[op])]
                owner = self.cached(call, run.graph)
                first[key] = CachedResults(NONE, run.first_op, call, owner, key)
        return list(first.values())

    def _fill_key(self, run: ProgramRun) -> str:
        return run.cache_key or self._key_of_op.get(run.parent_op) or f"{run.graph} {run.name}"

    @cached_property
    def _key_of_op(self) -> dict[int, str]:
        loads = self._timeline.cache_loads
        pairs = zip(loads.ops.values(), loads.keys.values(), strict=True)
        return {op: loads.names[key] for op, key in pairs}

    @cached_property
    def _key_of_call(self) -> dict[tuple[int, int], str]:
        """The key of a load_cached in a graph, for a pass whose own line with the key could not be read."""
        return {(self._graph_of(op), self._calls[op]): key for op, key in self._key_of_op.items()}

    def _graph_of(self, op: int) -> int:
        return self._timeline.programs[self._programs[op]].graph

    def hit_key(self, op: int, call: OpCall) -> str:
        """The key under which a load_cached finds its results; graph and function where the log has no key."""
        graph = self._graph_of(op)
        return self._key_of_op.get(op) or self._key_of_call.get((graph, self._calls[op])) or f"{graph} {call.callee}"

    def _caller(self, run: ProgramRun) -> OpCall | None:
        """The load_cached that ran a const-eval; for one outside any pass, the one of its graph that names it."""
        if run.parent_op != NONE:
            call = self._calls[run.parent_op]
            return None if call == NONE else self._timeline.calls[call]
        if run.graph == NONE:
            return None
        last = self._timeline.programs[self._timeline.graphs[run.graph].runs[-1]]
        rows = (self._calls[op] for op in range(last.first_op, last.end_op))
        known = (self._timeline.calls[call] for call in rows if call != NONE)
        return next((call for call in known if call.callee == run.name), None)


# --- Readings per op: the snapshot before it, and its effect, the next snapshot minus its own ---

_GAP_AFTER = int(OpFlag.GAP_AFTER)  # a plain int: it is compared a million times
UNKNOWN = -(1 << 62)  # in a column of effects: not in the log


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
        """The change by each op, in ticks per bank; UNKNOWN where its own or the next snapshot is missing."""
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
    """The default memory: DRAM, else the first."""
    names = [memory.name for memory in timeline.memories]
    if not names:
        msg = f"{timeline.source} has no memory readings; set TT_RUNTIME_MEMORY_LOG_LEVEL=any and run again"
        raise InputError(msg)
    return "DRAM" if "DRAM" in names else names[0]


def tick_bytes(timeline: MemoryTimeline, ticks: int) -> int:
    """Ticks as bytes, rounded."""
    return round(ticks * (1 << 20) / timeline.ticks_per_mib)


def spans_host(timeline: MemoryTimeline) -> list[bool]:
    """Whether an op's effect may include work of the host, because the next snapshot belongs to another pass."""
    programs = timeline.ops.programs.values()
    passes = [run.pass_index for run in timeline.programs]
    outermost = [passes[program] for program in programs]
    closed = {mark.next_op - 1 for mark in timeline.marks}
    return [
        op not in closed and (op + 1 == len(outermost) or outermost[op + 1] != own) for op, own in enumerate(outermost)
    ]


def outermost_run(programs: Sequence[ProgramRun], number: int) -> int:
    """The row of the outermost run that a run is nested in, or its own."""
    while programs[number].parent != NONE:
        number = programs[number].parent
    return number


# --- Study ---

_L1_ROW_ALIGNMENT_BYTES = 16


class Study:
    """A timeline with its columns unpacked once, and its readings and owners; every analysis shares it."""

    def __init__(self, timeline: MemoryTimeline) -> None:
        self.timeline = timeline
        self.calls = timeline.ops.calls.values()
        self.programs = timeline.ops.programs.values()
        self.flags = timeline.ops.flags.values()
        self._made: dict[object, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What an analysis needs that others need, too: made once, and gone with the study."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    @cached_property
    def readings(self) -> dict[str, Readings]:
        """By memory, in the order of the log."""
        return readings_of(self.timeline)

    def bank_bytes(self, buffer: Buffer) -> int:
        """What a buffer takes in the fullest bank of its memory."""
        is_dram = buffer.memory == "DRAM"
        alignment = self.timeline.row_alignment_bytes if is_dram else _L1_ROW_ALIGNMENT_BYTES
        return buffer.bank_bytes(banks=self.banks[buffer.memory], row_alignment_bytes=alignment)

    @cached_property
    def owners(self) -> Owners:
        """Names of weights."""
        return Owners(self.timeline)

    @cached_property
    def banks(self) -> dict[str, int]:
        """The number of banks of each memory; 1 where it was never read."""
        return {memory.name: next(iter(memory.banks.values()), 1) for memory in self.timeline.memories}

    @cached_property
    def calling_ops(self) -> set[int]:
        """The ops that ran a nested program."""
        return {run.parent_op for run in self.timeline.programs if run.parent_op != NONE}

    @cached_property
    def closing_ops(self) -> set[int]:
        """The ops that a snapshot follows which belongs to no op, such as the one after a pass."""
        return {mark.next_op - 1 for mark in self.timeline.marks}

    def call(self, op: int) -> OpCall | None:
        """The text of an op; None where the log has none."""
        return None if self.calls[op] == NONE else self.timeline.calls[self.calls[op]]

    def run(self, op: int) -> ProgramRun:
        """The program run that an op belongs to."""
        return self.timeline.programs[self.programs[op]]

    def outermost_run(self, op: int) -> int:
        """The row of the outermost run that an op belongs to."""
        return outermost_run(self.timeline.programs, self.programs[op])

    def name_of(self, op: int) -> str:
        """An op in one line: its text, or its type where that is all there is."""
        call = self.call(op)
        if call is not None and call.name:
            return str(call)
        op_type = self.timeline.ops.op_types.values()[op]
        return "an op that could not be read" if op_type == NONE else self.timeline.op_types[op_type]
