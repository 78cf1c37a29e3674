"""Run graphs on the simulated device: a log in any style, and the truth about it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random

from tests.memory.log_generator.device import Allocation, Memory, OutOfMemoryError, wormhole
from tests.memory.log_generator.graphs import Graph, Op
from tests.memory.log_generator.style import Style, module_dump, op_text, written
from tests.memory.log_generator.tensors import Tensor


@dataclass
class Row:
    """The truth about one op run."""

    name: str
    op_type: str
    program: str
    pass_index: int
    graph: int
    const_eval: bool
    memory: dict[str, tuple[int, int, int]]  # before the op: allocated, free, largest free, in thousandths of a MiB
    live: dict[str, list[tuple[str, int]]]  # before the op: owner and bytes per bank of every buffer
    blocks: dict[str, list[tuple[int, int]]]  # before the op: address and size of every block in a bank
    retained: bool = False
    effect: dict[str, int] = field(default_factory=dict)  # absent for the last op of a log without a later snapshot


@dataclass
class Truth:
    """What a right reader must find."""

    rows: list[Row] = field(default_factory=list)
    snapshots: list[dict[str, tuple[int, int, int]]] = field(default_factory=list)  # all, in order, with submits
    owners: list[int] = field(default_factory=list)  # row of each snapshot, -1 for a submit
    passes: int = 0
    out_of_memory: OutOfMemoryError | None = None
    failed_row: int = -1

    def peak(self, memory: str) -> int:
        return max((snapshot[memory][0] for snapshot in self.snapshots), default=0)


KEPT_OUTPUT = "kept output"  # the owner of an output that the host refers to after its pass
UNKNOWN_OWNER = "unknown"  # the owner of a buffer that no line of the log names


@dataclass(frozen=True)
class Host:
    """What the program around the graphs does with device tensors."""

    keeps_outputs: bool = False  # a leak: no output is ever freed
    replaces_outputs: bool = False  # `out = model(x)`: an output lives until the same graph returned the next one
    keeps_inputs: bool = False  # an input stays until the same graph runs again
    uploads_first: bool = False  # all weights before the first pass, instead of before the pass that needs them
    base_bytes: int = 0  # per bank, allocated before the log begins
    churn_bytes: int = 0  # per bank: before each pass up to three buffers of this size that no line names come or go
    slots: bool = False  # each output of each graph is dropped, replaced or kept, drawn once
    donates: bool = False  # inputs are not retained: the deallocate behind their last use frees them
    feeds: bool = False  # an output of the type of an input becomes the input of the next pass, as caches do
    unloads: bool = False  # weights and cached results that no later pass needs are freed, as between two tests
    invalidates: float = 0.0  # the probability that a cached result is computed again
    program_cache: bool = False  # the first run of an op leaves a small buffer that no line names
    erratic: float = 0.0  # the probability that an output is treated otherwise than the one of the pass before
    forgets: float = 0.0  # the probability that, before a pass, kept outputs are freed
    reopens: tuple[int, ...] = ()  # the passes before which the device is closed and opened again
    seed: int = 7


class Runtime:
    """The runtime: executes graphs and writes lines."""

    def __init__(self, style: Style, memories: dict[str, Memory] | None = None, host: Host | None = None) -> None:
        self.style = style
        self.host = host or Host()
        self.memories = memories or wormhole()
        self.lines: list[str] = []
        self.truth = Truth()
        self.allocated: list[Allocation] = []
        self.cache: dict[str, list[Allocation]] = {}
        self.arguments: dict[tuple[object, ...], Allocation] = {}
        self.host_outputs: list[Allocation] = []  # outputs the host still holds
        self.held_outputs: dict[int, list[Allocation]] = {}  # by graph, where the host replaces them
        self.unnamed: list[Allocation] = []
        self.random = Random(self.host.seed)  # noqa: S311 - no secret
        self.policies: dict[tuple[int, int], str] = {}  # what the host does with an output of a graph
        self.fed: dict[tuple[int, int], Allocation] = {}  # by graph and argument
        self.later: tuple[int, ...] = ()  # the graphs of the passes to come
        self.cache_graphs: dict[str, set[int]] = {}
        self.program_cache: set[str] = set()
        self.output_values: list[str] = []  # the names of the outputs that the host has
        self.graphs: list[Graph] = []
        self.captured: set[int] = set()
        self.compiled: set[int] = set()

    # writing

    def say(self, level: str, message: str, category: str = "Always") -> None:
        if level == "DEBUG" and self.style.info_only:
            return
        self.lines.append(f"{category:>23} | {level:>8} | {message}")

    def block(self, header: str, *, row: int) -> None:
        self.say("INFO", f"Device memory state {header}")
        for number, memory in enumerate(self.memories.values()):
            if self.style.prints and number == 1:
                self.lines.append(f"step {len(self.truth.rows)}: loss=0.5")
            self.say("INFO", memory.reading())
        self.truth.snapshots.append({name: memory.ticks() for name, memory in self.memories.items()})
        self.truth.owners.append(row)

    # running

    def compile(self, graph: Graph) -> int:
        self.graphs.append(graph)
        if self.style.dumps and not self.style.compiles_late:
            self.lines += module_dump(graph, self.style)
        return len(self.graphs) - 1

    def transfer(self, index: int) -> None:
        """Put the arguments that live on the device there, once; weights are known by name, in every graph."""
        for number, argument in enumerate(self.graphs[index].arguments):
            key = self._argument_key(index, number)
            if argument.tensor.memory != "host" and key not in self.arguments:
                fed = self.fed.pop((index, number), None)
                if fed is not None:
                    fed.owner = argument.name
                self.arguments[key] = fed or self._allocate(argument.tensor, owner=argument.name)

    def _argument_key(self, index: int, number: int) -> tuple[object, ...]:
        argument = self.graphs[index].arguments[number]
        if argument.kind == "input" and not argument.kv_cache:
            return ("input", index, number)
        return (argument.name, argument.tensor)

    def _drop_inputs(self, index: int) -> None:
        for key, allocation in list(self.arguments.items()):
            if key[0] == "input" and (key[1] == index or not self.host.keeps_inputs):
                self._release(allocation)
                del self.arguments[key]

    def _unload(self) -> None:
        """Free the weights and cached results of a model, graphs that share weights, when none of them runs again."""
        if not self.host.unloads:
            return
        names = [{one.name for one in graph.arguments if one.kind != "input"} for graph in self.graphs]
        needed = set(self.later)
        for _ in self.graphs:
            needed |= {index for index, own in enumerate(names) if any(own & names[other] for other in needed)}
        for key in [key for key in self.arguments if key[0] != "input" and not self._is_used(key, needed)]:
            self._release(self.arguments.pop(key))
        for cache_key in [key for key, users in self.cache_graphs.items() if not users & needed]:
            for allocation in self.cache.pop(cache_key, []):
                self._release(allocation)
            del self.cache_graphs[cache_key]

    def _is_used(self, key: tuple[object, ...], graphs: set[int]) -> bool:
        sizes = {index: len(self.graphs[index].arguments) for index in graphs}
        return any(key == self._argument_key(index, number) for index, size in sizes.items() for number in range(size))

    def _forget(self) -> None:
        """Free some of the outputs that the host kept."""
        if not (self.host.forgets and self.random.random() < self.host.forgets):
            return
        kept = [one for one in self.allocated if one.owner == KEPT_OUTPUT and one.names == 1]
        fed = {id(one) for one in self.fed.values()}
        for allocation in kept[: self.random.randint(1, 3)]:
            if id(allocation) not in fed:
                self._release(allocation)
                for held in self.held_outputs.values():
                    held[:] = [one for one in held if one is not allocation]

    def _reopen(self) -> None:
        """Close the device and open it again: all buffers are gone, and every cache is empty."""
        if self.truth.passes not in self.host.reopens:
            return
        for memory in self.memories.values():
            memory.blocks.clear()
        for gone in (self.allocated, self.host_outputs, self.unnamed):
            gone.clear()
        for one in (self.cache, self.arguments, self.held_outputs, self.fed, self.cache_graphs):
            one.clear()
        self.program_cache.clear()
        self.captured.clear()

    def _churn(self) -> None:
        if not self.host.churn_bytes:
            return
        while self.unnamed:
            self._release(self.unnamed.pop())
        for _ in range(self.random.randrange(4)):
            memory = self.memories["DRAM"]
            at = memory.allocate(self.host.churn_bytes)
            self.unnamed.append(Allocation(memory, at, self.host.churn_bytes, UNKNOWN_OWNER, 0, 0))
        self.allocated += self.unnamed

    def begin(self) -> None:
        """What happens before the first pass."""
        if self.host.base_bytes:
            memory = self.memories["DRAM"]
            at = memory.allocate(self.host.base_bytes)
            self.allocated.append(Allocation(memory, at, self.host.base_bytes, UNKNOWN_OWNER, 0, 0))
        for index, graph in enumerate(self.graphs if self.host.uploads_first else ()):
            for number, argument in enumerate(graph.arguments):
                key = self._argument_key(index, number)
                if argument.kind != "input" and argument.tensor.memory != "host" and key not in self.arguments:
                    self.arguments[key] = self._allocate(argument.tensor, owner=argument.name)

    def _drop_outputs(self) -> None:
        if self.host.slots or self.host.feeds:
            return  # each output has its own end
        for allocation in self.host_outputs if not (self.host.keeps_outputs or self.host.replaces_outputs) else ():
            self._release(allocation)
        self.host_outputs = []

    def _hold_outputs(self, index: int) -> None:
        if self.host.slots or self.host.feeds:
            self._hold_each(index)
            return
        for allocation in self.host_outputs:
            if allocation.owner.startswith("ttnn."):
                allocation.owner = KEPT_OUTPUT
        if self.host.replaces_outputs:
            for allocation in self.held_outputs.get(index, []):
                self._release(allocation)
            self.held_outputs[index] = self.host_outputs

    def _hold_each(self, index: int) -> None:
        """Feed an output to a graph, or do with it what the host always does with this one."""
        kept = []
        for slot, (value, allocation) in enumerate(zip(self.output_values, self.host_outputs, strict=True)):
            target = self._fed_argument(index, value)
            is_own = allocation.owner.startswith("ttnn.")
            if is_own:
                allocation.owner = KEPT_OUTPUT
            if target is not None and is_own:
                old = self.fed.pop(target, None)
                if old is not None:
                    self._release(old)
                self.fed[target] = allocation
                continue
            choices = ("drop", "drop", "keep", "replace") if self.host.slots else ("drop",)
            if self.host.erratic and self.random.random() < self.host.erratic:
                self.policies.pop((index, slot), None)
            policy = self.policies.setdefault((index, slot), self.random.choice(choices))
            if policy == "drop":
                self._release(allocation)
            elif policy == "replace":
                kept.append(allocation)
        for allocation in self.held_outputs.get(index, []):
            self._release(allocation)
        self.held_outputs[index] = kept
        self.host_outputs = []

    def _fed_argument(self, index: int, value: str) -> tuple[int, int] | None:
        """The argument of a graph that takes an output: an input of the same type."""
        if not self.host.feeds or value.startswith("%arg"):
            return None
        tensor = self.graphs[index].tensor(value)
        for number, argument in enumerate(self.graphs[index].arguments):
            if argument.kind == "input" and not argument.kv_cache and argument.tensor == tensor:
                return index, number
        return None

    def run(self, index: int) -> bool:
        """One pass; False when the device ran out of memory."""
        self._unload()
        self._reopen()
        self._drop_outputs()
        self._forget()
        self._churn()
        self._drop_inputs(index)
        try:
            self.transfer(index)
        except OutOfMemoryError as error:
            self.die(error)
            return False
        pass_index = self.truth.passes
        self.truth.passes += 1
        if self.style.dumps and self.style.compiles_late and index not in self.compiled:
            self.lines += module_dump(self.graphs[index], self.style)
            self.compiled.add(index)
        if self.style.level == "any":
            self.block("before submit", row=-1)
        graph = self.graphs[index]
        try:
            self.host_outputs = self._program(graph, graph.name, index, pass_index, {})
        except OutOfMemoryError as error:
            self.die(error)
            return False
        self._hold_outputs(index)
        if self.style.level == "any":
            self.block("after submit", row=-1)
        return True

    def _program(
        self, graph: Graph, name: str, index: int, pass_index: int, outer: dict[str, Allocation | None]
    ) -> list[Allocation]:
        self.say("DEBUG", f"Starting execution of program: {name}", "RuntimeTTNN")
        values: dict[str, Allocation | None] = dict(outer)
        if not outer:
            for number in range(len(graph.arguments)):
                values[f"%arg{number}"] = self.arguments.get(self._argument_key(index, number))
        traced_from = self._traced_from(graph) if name == graph.name else len(graph.scheduled)
        for op in graph.scheduled[:traced_from]:
            self._op(graph, op, name, index, pass_index, values)
        if traced_from < len(graph.scheduled):
            self._trace(graph, traced_from, index, pass_index, values)
        self.say("DEBUG", f"Finished execution of program: {name}", "RuntimeTTNN")
        for value in graph.never_freed:
            allocation = values.get(value)
            if allocation is not None:
                self._release(allocation)
        self.output_values = [value for value in graph.outputs if values[value] is not None]
        if name == graph.name and not outer:  # an output that is an argument or cached is one more reference to it
            kept = {result for op in graph.ops if op.callee for result, _ in op.results}
            for value in graph.outputs:
                shared = values[value] if value.startswith("%arg") or value in kept else None
                if shared is not None:
                    shared.names += 1
        return [allocation for value in graph.outputs if (allocation := values[value]) is not None]

    def _traced_from(self, graph: Graph) -> int:
        ops = graph.scheduled
        if not graph.traced:
            return len(ops)
        return 1 + next(number for number, op in enumerate(ops) if op.name == "ttnn.get_device")

    def _trace(
        self, graph: Graph, first: int, index: int, pass_index: int, values: dict[str, Allocation | None]
    ) -> None:
        """The body of a traced graph: op by op when captured, as a whole afterwards."""
        caller = Op("ttnn.capture_or_execute_trace", "CaptureOrExecuteTraceOp", (), (), callee="trace_0_main")
        self._op(graph, caller, graph.name, index, pass_index, values)
        inner, ops = "run_and_capture_trace_0_main", graph.scheduled[first:]
        if index in self.captured:
            self.say("DEBUG", "Trace cache hit, executing trace directly")
            inner, ops = "execute_trace_0_main", [Op("ttnn.execute_trace", "ExecuteTraceOp", (), ())]
        else:
            self.say("DEBUG", "Trace cache miss, allocating slots and capturing trace")
        self.say("DEBUG", f"Starting execution of program: {inner}", "RuntimeTTNN")
        for op in ops:
            self._op(graph, op, inner, index, pass_index, values)
        self.say("DEBUG", f"Finished execution of program: {inner}", "RuntimeTTNN")
        for value in graph.outputs:
            values.setdefault(value, None)
        self.captured.add(index)

    def _op(
        self, graph: Graph, op: Op, program: str, index: int, pass_index: int, values: dict[str, Allocation | None]
    ) -> None:
        row = Row(
            name=op.name,
            op_type=op.op_type,
            program=program,
            pass_index=pass_index,
            graph=index,
            const_eval="const_eval" in program,
            memory={name: memory.ticks() for name, memory in self.memories.items()},
            live=self._live(),
            blocks={name: memory.blocks.copy() for name, memory in self.memories.items()},
        )
        self.truth.rows.append(row)
        self.say("DEBUG", f"Executing operation: {op_text(graph, op, self.style)}", "RuntimeTTNN")
        if self.style.level != "program":
            self.block(f"before operation {op.op_type}", row=len(self.truth.rows) - 1)
        number = len(self.truth.rows) - 1
        text = f"{index} {program} {op}"
        try:
            if self.host.program_cache and op.name in {"ttnn.matmul", "ttnn.gelu"} and text not in self.program_cache:
                self.program_cache.add(text)
                for name, size in (("L1_SMALL", 1024), ("DRAM", 2048)):
                    memory = self.memories[name]
                    self.allocated.append(Allocation(memory, memory.allocate(size), size, UNKNOWN_OWNER, 0, 0))
            self._execute(graph, op, row, index, pass_index, values)
        except OutOfMemoryError:
            self.truth.failed_row = number if self.truth.failed_row < 0 else self.truth.failed_row
            raise

    def _execute(
        self, graph: Graph, op: Op, row: Row, index: int, pass_index: int, values: dict[str, Allocation | None]
    ) -> None:
        if op.name == "ttnn.deallocate":
            loaded = {name for one in graph.ops if one.callee for name, _ in one.results}
            value = op.operands[0]
            retained = value.startswith("%arg") or value in loaded
            if self.host.donates and value.startswith("%arg") and value not in graph.outputs:
                retained = not self._donate(graph, index, int(value[4:]), values)
            row.retained = self._deallocate(values.get(op.operands[0]), retained=retained)
        elif op.name == "ttcore.load_cached":
            allocation = self._load_cached(graph, op, index, pass_index, values)
            values |= dict(zip([name for name, _ in op.results], allocation, strict=True))
        elif (op.view or op.in_place) and (shared := values[op.operands[0]]) is not None:
            shared.names += 1
            values[op.results[0][0]] = shared
        else:
            consumed = values.get(op.operands[0]) if op.consumes else None
            if consumed is not None and consumed.names == 1 and consumed.owner.startswith("ttnn."):
                self._release(consumed)
                values[op.operands[0]] = None
            for name, tensor in op.results:
                values[name] = None if tensor.memory == "host" else self._allocate(tensor, owner=f"{op.name} {name}")

    def _load_cached(
        self, graph: Graph, op: Op, index: int, pass_index: int, values: dict[str, Allocation | None]
    ) -> list[Allocation]:
        key = _hash(graph, op)
        if self.style.cache_keys:
            self.say("DEBUG", f"Running LoadCachedOp for function {op.callee} with hash: {key}")
        else:
            key = f"{index} {op.callee}"  # before there were hashes, each graph had a cache of its own
        self.cache_graphs.setdefault(key, set()).add(index)
        if key in self.cache and not (self.host.invalidates and self.random.random() < self.host.invalidates):
            self.say("DEBUG", f"Cache hit for function: {op.callee}")
            return self.cache[key]
        old = self.cache.get(key, [])
        self.say("DEBUG", f"Cache miss or invalid cache for function: {op.callee}")
        inner = graph.const_evals[op.callee]
        outer = {f"%arg{number}": values[value] for number, value in enumerate(op.operands)} or {"": None}
        self.cache[key] = self._program(inner, op.callee, index, pass_index, outer)
        for allocation in old:
            self._release(allocation)
        names = [graph.arguments[int(value[4:])].name for value in op.operands]
        for allocation in self.cache[key]:
            allocation.owner = f"const-eval of {', '.join(names)}" if names else f"const-eval {op.callee}"
        self.say("DEBUG", f"executed sub-func: {op.callee}")
        return self.cache[key]

    def _donate(self, graph: Graph, index: int, number: int, values: dict[str, Allocation | None]) -> bool:
        """Whether an argument is an input of this pass alone, which the deallocate may free."""
        argument = graph.arguments[number]
        if argument.kind != "input" or argument.kv_cache or values.get(f"%arg{number}") is None:
            return False
        self.arguments.pop(self._argument_key(index, number), None)
        return True

    def _deallocate(self, allocation: Allocation | None, *, retained: bool) -> bool:
        """Free a value; the retained flag is the tensor's, a view of a retained tensor does not have it."""
        if retained:
            self.say("DEBUG", "Tensor is retained thus not deallocating. To deallocate, set retain to false first")
            return True
        if allocation is not None:
            self._release(allocation)
        return False

    def _allocate(self, tensor: Tensor, *, owner: str) -> Allocation:
        memory = self.memories[tensor.memory]
        size = tensor.bank_bytes(memory.banks, memory.row_alignment)
        try:
            at = memory.allocate(size)
        except OutOfMemoryError as error:
            error.args = (str(tensor.padded_bytes()),)
            raise
        allocation = Allocation(memory, at, size, owner, tensor.padded_bytes(), tensor.logical_bytes())
        self.allocated.append(allocation)
        return allocation

    def _release(self, allocation: Allocation) -> None:
        if allocation.drop():
            self.allocated.remove(allocation)

    def _live(self) -> dict[str, list[tuple[str, int]]]:
        live: dict[str, list[tuple[str, int]]] = {name: [] for name in self.memories}
        for allocation in self.allocated:
            live[allocation.memory.name].append((allocation.owner, allocation.bank_bytes))
        return live

    def die(self, error: OutOfMemoryError) -> None:
        memory = error.memory
        self.truth.out_of_memory = error
        text = (
            f"Out of Memory: Not enough space to allocate {error.args[0]} B {memory.name} buffer across {memory.banks} "
            f"banks, where each bank needs to store {error.bank_bytes} B, but bank size is {memory.capacity} B "
            f"(allocated: {memory.allocated} B, free: {memory.free} B, largest free block: {memory.largest} B)"
        )
        stamp = "2026-05-14 01:00:31.755"
        self.lines += [
            f"{stamp} | critical |          Always | TT_FATAL: {text} (assert.hpp:103)",
            f"{stamp} (2408.930s) [        4F4456C0]                utils.h:62     ERR| Exception:",
            "{TT_FATAL @ bank_manager.cpp:141: false",
            "info:",
            text,
            "backtrace:",
            " --- tt::tt_metal::BankManager::allocate_buffer(unsigned long)",
            "}",
            "RuntimeError: Bad StatusOr access: INTERNAL: Error code: 13",
        ]

    def finish(self) -> Truth:
        """Fill in the effects: next snapshot minus own."""
        truth = self.truth
        for number, row in enumerate(truth.owners[:-1]):
            if row >= 0:
                before, after = truth.snapshots[number], truth.snapshots[number + 1]
                truth.rows[row].effect = {name: after[name][0] - before[name][0] for name in before}
        return truth


def _hash(graph: Graph, op: Op) -> str:
    """The key of a const-eval: its function and its weights, not the graph; equal ones share their results."""
    arguments = [graph.arguments[int(value[4:])] for value in op.operands]
    weights = [(one.name, one.tensor) for one in arguments]
    body = graph.const_evals[op.callee].ops
    return sha256(f"{weights} {body}".encode()).hexdigest()


def generate(
    graphs: list[Graph],
    *,
    passes: int = 2,
    style: Style | None = None,
    memories: dict[str, Memory] | None = None,
    host: Host | None = None,
    order: Sequence[int] | None = None,
) -> tuple[bytes, Truth]:
    """Run each graph once a pass, or in the order given; the log and the truth about it."""
    runtime = execute(graphs, passes=passes, style=style, memories=memories, host=host, order=order)
    return written(runtime.lines, runtime.style), runtime.truth


def execute(
    graphs: list[Graph],
    *,
    passes: int = 2,
    style: Style | None = None,
    memories: dict[str, Memory] | None = None,
    host: Host | None = None,
    order: Sequence[int] | None = None,
) -> Runtime:
    """The runtime after all passes, with its lines."""
    runtime = Runtime(style or Style(), memories, host)
    for graph in graphs:
        runtime.compile(graph)
    alive = True
    try:
        runtime.begin()
    except OutOfMemoryError as error:
        runtime.die(error)
        alive = False
    whole = tuple(order if order is not None else list(range(len(graphs))) * passes)
    for number, index in enumerate(whole):
        runtime.later = whole[number:]
        alive = alive and runtime.run(index)
    runtime.finish()
    return runtime
