"""A graph report of ttnn -> MemoryTimeline: buffers with addresses, circular buffers, tensors and source lines.

The report lists events: a call begins, a buffer is allocated at an address, a program runs with its circular buffers, a
buffer is freed, the call ends. Sizes are exact, so a tick of the timeline is one byte. A row of the timeline is a call
that Python made, or a program that ran inside it: only while a program runs are its circular buffers and its temporary
tensors there, and most peaks of L1 are made of these.
"""

import re
from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeGuard

from torchstone.memory.graphs import OpenRun, close_run, freeze_run
from torchstone.memory.timeline_builder import Scale, TimelineBuilder
from torchstone.record.memory import (
    NONE,
    Allocation,
    Buffer,
    CoreBuffer,
    CoreRange,
    Evidence,
    Graph,
    MemoryState,
    MemoryTimeline,
    OpCall,
    Role,
    TensorType,
)

Json = Mapping[str, object]

_MAX_SIZE, _MAX_DIGITS = 1 << 50, 20
DIALECT, DATABASE_DIALECT = "ttnn-report", "ttnn-database"
L1_TOTAL = "L1_WITH_CIRCULAR_BUFFERS"
CAVEAT = (
    "Dataflow buffers of newer ops appear only in captures made without dispatch: where the report has none, the true "
    "L1 peak may be higher."
)
DATABASE_CAVEAT = (
    "The database has the buffers after each operation: tensors that live only inside one are not in it. The graph "
    "report has them."
)
BEFORE = "before the report begins"
_DTYPES = {
    "BFLOAT16": "bf16", "FLOAT32": "f32", "BFLOAT8_B": "bfp_bf8", "BFLOAT4_B": "bfp_bf4", "UINT32": "u32",
    "INT32": "si32", "UINT16": "u16", "UINT8": "u8",
}  # fmt: skip
_ELEMENT_BITS = {"bf16": 16, "f32": 32, "bfp_bf8": 8.5, "bfp_bf4": 4.5, "u32": 32, "si32": 32, "u16": 16, "u8": 8}
_NUMBERS = re.compile(r"\d+")
_CORES = re.compile(r"\[?\(?(?:x=)?(\d{1,9})[-,](?:y=)?(\d{1,9})\)? - \(?(?:x=)?(\d{1,9})[-,](?:y=)?(\d{1,9})\)?\]?")
_TENSOR_ARGUMENT = re.compile(r"^(?:ttnn\.|torch\.)?Tensor\(")
_TENSOR_ID, _SHAPE = re.compile(r"tensor_id=(\d+)"), re.compile(r"[Ss]hape(?:=|\()+(?:Shape\()?(\[[\d, ]*\])")
_MEMORY_CONFIG = re.compile(
    r"MemoryConfig\(memory_layout=TensorMemoryLayout::(\w+),\s*buffer_type=BufferType::(\w+),\s*shard_spec=std::nullopt"
    r"[^()]*\)"
)
_LONGEST_ARGUMENT = 240
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def is_node_list(document: object) -> TypeGuard[Sequence[Json]]:
    """Whether a document is the list of nodes of a graph capture."""
    return (
        isinstance(document, list) and bool(document) and isinstance(document[0], dict) and "node_type" in document[0]
    )  # others that are not nodes are left out when the report is read


def is_graph_report(document: object) -> TypeGuard[Json]:
    """Whether a document is a graph report of ttnn."""
    return isinstance(document, dict) and is_node_list(document.get("graph"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The memories of one chip."""

    dram_banks: int = 12
    dram_bank_bytes: int = 0
    l1_banks: int = 64
    l1_bank_bytes: int = 0
    grid: tuple[int, int] | None = None  # columns and rows of compute cores
    l1_end: int = 0  # the address behind L1, from which tensors grow downwards

    @staticmethod
    def of(devices: object) -> "Device":
        """The first device of a report; without one, capacities are unknown."""
        found = devices[0] if isinstance(devices, list) and devices and isinstance(devices[0], dict) else {}
        columns, rows = _number(found.get("num_x_compute_cores")), _number(found.get("num_y_compute_cores"))
        return Device(
            grid=(columns, rows) if columns and rows else None,
            dram_banks=_number(found.get("num_dram_channels")) or 12,
            dram_bank_bytes=_number(found.get("dram_size_per_channel")),
            l1_banks=_number(found.get("l1_num_banks")) or 64,
            l1_bank_bytes=_number(found.get("l1_bank_size")),
            l1_end=_number(found.get("worker_l1_size")),
        )


@dataclass(slots=True)
class _Tensor:
    """What the report says about one tensor."""

    shape: tuple[int, ...] | None
    dtype: str
    layout: str
    address: int | None
    cores: tuple[CoreRange, ...] = ()


@dataclass(slots=True, eq=False)
class _Live:
    """A buffer that is allocated."""

    memory: str
    address: int
    bank_bytes: int
    size_bytes: int
    page_bytes: int
    sharding: str
    made_by: int
    from_op: int
    tensor_id: int | None = None
    end_op: int = NONE


@dataclass(slots=True)
class _Call:
    """A call that Python made."""

    name: str
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    location: str = ""
    arguments: str = ""


def read_report(document: Json, *, source: str, python_io: object = None, dialect: str = DIALECT) -> MemoryTimeline:
    """The timeline of a graph report; `python_io` adds arguments and source lines."""
    nodes = document["graph"]
    calls = python_io if python_io is not None else document.get("python_io")
    assert is_node_list(nodes)  # noqa: S101 - checked by the caller
    nodes = [node for node in nodes if isinstance(node, dict)]
    reader = _Reader(nodes, Device.of(document.get("devices")), calls if isinstance(calls, list) else [])
    return reader.read(source, dialect)


class _Reader:
    """Follows the events of one report."""

    def __init__(self, nodes: Sequence[Json], device: Device, python_io: list[object]) -> None:
        self._nodes, self._device = nodes, device
        self._by_counter = {_number(node.get("counter")): node for node in nodes}
        self._python = [one for one in python_io if isinstance(one, dict)]
        self._at_python = 0
        self._builder = TimelineBuilder()
        self._types: list[TensorType] = []
        self._type_ids: dict[TensorType, int] = {}
        self._tensors: dict[int, _Tensor] = {}
        self._live: dict[int, _Live] = {}  # by the buffer's node, or its address
        self._all: list[_Live] = []
        self._circular: list[Json] = []
        self._stack: list[Json] = []
        self._calls: list[_Call] = []
        self._rows: list[int] = []  # call of each row
        self._call_row = NONE  # of the call that is running
        self._own_buffers: list[tuple[int, int]] = []  # row, and bytes of the circular buffers there
        self._core_buffers: list[CoreBuffer] = []
        self._states: dict[tuple[str, tuple[int, ...]], int] = {}

    def read(self, source: str, dialect: str) -> MemoryTimeline:
        """The whole report."""
        self._builder.start("report", 1)
        for node in self._nodes:
            self._take(node)
        ops = len(self._rows)
        for buffer in self._live.values():
            buffer.end_op = ops
        return self._timeline(source, dialect)

    # --- Events ---

    def _take(self, node: Json) -> None:
        params = node.get("params")
        values: Json = params if isinstance(params, dict) else {}
        match node.get("node_type"):
            case "function_start":
                self._begin(node, values)
            case "function_end":
                self._end(node)
            case "tensor":
                self._learn_tensor(values)
            case "buffer_allocate":
                self._allocate(node, values)
            case "buffer_deallocate":
                self._free(node, values)
            case "circular_buffer_allocate" | "dataflow_buffer_allocate" as kind:
                self._add_circular({**values, "kind": kind.partition("_")[0]})
            case "circular_buffer_deallocate_all" | "dataflow_buffer_deallocate_all":
                self._run_program()
                self._circular = []
            case "program_execution":
                self._run_program()
            case _:
                pass

    def _add_circular(self, values: Json) -> None:
        """A buffer of the program that runs next; a mesh lists it for each chip, and sizes are those of one chip."""
        if not self._circular or self._circular[0].get("device_id") == values.get("device_id"):
            self._circular.append(values)

    def _begin(self, node: Json, values: Json) -> None:
        self._stack.append(node)
        if len(self._stack) == 1:
            self._circular = []
            self._calls.append(self._python_call(str(values.get("name", ""))))
            self._add_row()
            self._call_row = len(self._rows) - 1
        inputs = node.get("input_tensors")
        for counter in inputs if isinstance(inputs, list) else ():
            tensor = self._by_counter.get(_number(counter), {}).get("params")
            identity = _number(tensor.get("tensor_id"), NONE) if isinstance(tensor, dict) else NONE
            if identity != NONE and self._calls and identity not in self._calls[-1].inputs and not self._python:
                self._calls[-1].inputs.append(identity)

    def _python_call(self, name: str) -> _Call:
        """The call with what Python knows about it; calls that only C++ made have nothing."""
        call = _Call(name.replace("::", "."))
        if self._at_python < len(self._python) and self._python[self._at_python].get("name") == name:
            known = self._python[self._at_python]
            self._at_python += 1
            call.inputs = _numbers(known.get("input_tensor_ids"))
            call.outputs = _numbers(known.get("output_tensor_ids"))
            stack = known.get("python_stack_trace")
            frames = _FRAME.findall("\n".join(map(str, stack))) if isinstance(stack, list) else []
            call.location = ":".join(frames[0]) if frames else ""
            call.arguments = _arguments(known.get("arguments"))
        return call

    def _end(self, node: Json) -> None:
        # without dispatch no program runs: what a device operation allocated for it is all that its end shows
        if len(self._stack) == 1 or self._circular:
            self._run_program()
        if self._stack:
            self._stack.pop()
        connections = node.get("connections")
        if self._stack or self._python or not isinstance(connections, list) or not self._calls:
            return
        for counter in connections:
            after = self._by_counter.get(_number(counter), {})
            tensor = after.get("params")
            if after.get("node_type") == "tensor" and isinstance(tensor, dict) and "tensor_id" in tensor:
                self._calls[-1].outputs.append(_number(tensor["tensor_id"]))

    def _learn_tensor(self, values: Json) -> None:
        if "tensor_id" not in values:
            return
        identity = _number(values["tensor_id"])
        address = values.get("address")
        found = _Tensor(
            shape=tuple(_numbers(_NUMBERS.findall(str(values.get("shape", ""))))) or None,
            dtype=str(values.get("dtype", "")).rpartition("::")[2].rpartition(".")[2],
            layout=str(values.get("layout", "")).rpartition("::")[2].rpartition(".")[2],
            address=None if address is None else _number(address),
            cores=tuple(_core_ranges(str(values.get("memory_config", "")).partition("shard_spec=")[2])),
        )
        self._tensors[identity] = found
        memory = "L1" if _number(values.get("buffer_type")) == 1 else "DRAM"
        for buffer in self._live.values():
            if found.address is not None and buffer.address == found.address and buffer.memory == memory:
                buffer.tensor_id = identity

    def _allocate(self, node: Json, values: Json) -> None:
        memory = str(values.get("type", "DRAM"))
        size, page = _number(values.get("size")), _number(values.get("page_size")) or 2048
        banks = self._device.l1_banks if memory.startswith("L1") else self._device.dram_banks
        per_bank = _number(values.get("max_size_per_bank")) or -(-size // page // banks) * page or size
        made = _Live(
            memory=memory,
            address=_number(values.get("address")),
            bank_bytes=per_bank,
            size_bytes=size,
            page_bytes=page,
            sharding=str(values.get("layout", "")).lower(),
            made_by=self._call_row,
            from_op=len(self._rows),
        )
        key = self._key(node, made.address)
        if key in self._live:  # its place is taken again, so it was freed, although the report does not say when
            self._live[key].end_op = len(self._rows)
        self._live[key] = made
        self._all.append(made)

    def _free(self, node: Json, values: Json) -> None:
        key = self._key(node, _number(values.get("address")))
        gone = self._live.pop(key, None)
        if gone is None and "address" in values:
            address, memory = _number(values["address"]), str(values.get("type", ""))
            key = next(
                (one for one, live in self._live.items() if (live.address, live.memory) == (address, memory)), NONE
            )
            gone = self._live.pop(key, None)
        if gone is not None:
            gone.end_op = len(self._rows)

    def _key(self, node: Json, address: int) -> int:
        """The buffer's own node, to which both its events are connected; its address where it has none."""
        connections = node.get("connections")
        first = _number(connections[0], NONE) if isinstance(connections, list) and connections else NONE
        return first if self._by_counter.get(first, {}).get("node_type") == "buffer" else -2 - address

    # --- Rows ---

    def _run_program(self) -> None:
        """A row for the program that runs now, if its memory is more than that before the call."""
        if self._stack and self._calls and (self._circular or self._has_temporaries()):
            name = str(_mapping(self._stack[-1].get("params")).get("name", "program"))
            self._calls.append(_Call(f"program of {name.replace('::', '.')}"))
            self._add_row()
            self._circular = []

    def _has_temporaries(self) -> bool:
        """Whether a buffer was allocated since the last row: it may be gone before the next one."""
        return any(buffer.from_op == len(self._rows) for buffer in self._live.values())

    def _add_row(self) -> None:
        self._rows.append(len(self._calls) - 1)
        builder = self._builder
        builder.calls.append(OpCall(name=""))
        builder.add_op(len(builder.calls) - 1, len(self._rows))
        builder.open_block(len(self._rows) - 1, len(self._rows))
        for memory, state in self._readings():
            slot = builder.slot(memory)
            key = (memory, (state.allocated, state.free, state.largest_free))
            if key not in self._states:
                self._states[key] = builder.add_state(slot, state)
            builder.read_state(slot, self._states[key])
        builder.close_block()

    def _readings(self) -> Iterator[tuple[str, MemoryState]]:
        device = self._device
        used = {
            name: sum(one.bank_bytes for one in self._live.values() if one.memory == name) for name in ("DRAM", "L1")
        }
        circular = self._circular_bytes()
        if circular:
            self._own_buffers.append((len(self._rows) - 1, circular))
            self._core_buffers += [self._core_buffer(one) for one in self._circular if not _is_in_tensor(one)]
        yield "DRAM", self._state("DRAM", device.dram_banks, device.dram_bank_bytes, used["DRAM"])
        yield "L1", self._state("L1", device.l1_banks, device.l1_bank_bytes, used["L1"])
        yield L1_TOTAL, self._state("L1", device.l1_banks, device.l1_bank_bytes, used["L1"] + circular)

    def _state(self, memory: str, banks: int, capacity: int, used: int) -> MemoryState:
        free = max(capacity - used, 0)
        return MemoryState(
            banks=banks,
            capacity=capacity,
            allocated=used,
            free=free,
            largest_free=min(free, self._largest_hole(memory, capacity)),
        )

    def _largest_hole(self, memory: str, capacity: int) -> int:
        end = self._device.l1_end if memory == "L1" else capacity
        blocks: list[tuple[int, int]] = []
        for one in self._live.values():
            if one.memory == memory:
                insort(blocks, (one.address, one.bank_bytes))
        largest, at = 0, max(end - capacity, 0)
        for start, size in blocks:
            largest, at = max(largest, start - at), max(at, start + size)
        return max(largest, end - at)

    def _circular_bytes(self) -> int:
        """Bytes of the circular buffers on the core that has most of them; those that lie in a tensor take none."""
        per_core: dict[tuple[int, int], int] = {}
        total = 0
        for values in self._circular:
            if _is_in_tensor(values):
                continue
            size, cores = _number(values.get("size")), list(_cores(str(values.get("core_range_set", ""))))
            total += 0 if cores else size
            for core in cores:
                per_core[core] = per_core.get(core, 0) + size
        return total + max(per_core.values(), default=0)

    def _core_buffer(self, values: Json) -> CoreBuffer:
        return CoreBuffer(
            op=len(self._rows) - 1,
            bank_bytes=_number(values.get("size")),
            cores=tuple(_core_ranges(str(values.get("core_range_set", "")))),
            kind=str(values.get("kind", "circular")),
        )

    # --- The timeline ---

    def _timeline(self, source: str, dialect: str) -> MemoryTimeline:
        builder = self._builder
        builder.calls = [self._op_call(self._calls[row]) for row in self._rows]
        allocations = tuple(self._allocations())  # adds types
        run = OpenRun("report", Role.FORWARD, NONE, NONE, 0, 1)
        close_run(run, end_op=len(self._rows), line=len(self._nodes), complete=True)
        evidence = Evidence(
            lines=len(self._nodes), runtime_lines=len(self._nodes), op_lines=len(self._rows), op_blocks=len(self._rows)
        )
        built = builder.build(
            dialect=dialect,
            types=self._types,
            modules=[],
            evidence=evidence,
            scale=Scale(ticks_per_mib=1 << 20, row_alignment_bytes=32),
        )
        return MemoryTimeline(
            dialect=dialect,
            source=source,
            ticks_per_mib=1 << 20,
            memories=built.memories,
            ops=built.ops,
            calls=built.calls,
            types=tuple(self._types),
            programs=(freeze_run(run, pass_index=0, graph=0),),
            graphs=(Graph(name="report", runs=(0,)),),
            evidence=evidence,
            core_buffers=tuple(self._core_buffers),
            core_grid=self._device.grid or self._grid_in_use(),
            allocations=allocations,
        )

    def _grid_in_use(self) -> tuple[int, int] | None:
        """The grid that the buffers of programs span, where the source does not describe the device."""
        ranges = [one for buffer in self._core_buffers for one in buffer.cores]
        if not ranges:
            return None
        return 1 + max(one.right for one in ranges), 1 + max(one.bottom for one in ranges)

    def _op_call(self, call: _Call) -> OpCall:
        return OpCall(
            name=call.name,
            results=tuple(f"%{one}" for one in call.outputs),
            operands=tuple(f"%{one}" for one in call.inputs),
            result_types=tuple(self._type_of(one) for one in call.outputs),
            operand_types=tuple(self._type_of(one) for one in call.inputs),
            details=call.arguments,
            location=f'"{call.location}"' if call.location else "unknown",
        )

    def _type_of(self, tensor_id: int) -> int:
        tensor = self._tensors.get(tensor_id)
        buffer = next((one for one in reversed(self._all) if one.tensor_id == tensor_id), None)
        return self._type_id(tensor, buffer)

    def _type_id(self, tensor: _Tensor | None, live: _Live | None) -> int:
        dtype = _DTYPES.get(tensor.dtype, tensor.dtype.lower()) if tensor else ""
        shape = tensor.shape if tensor and prod(tensor.shape or ()) < _MAX_SIZE else None
        text = "x".join([*map(str, shape or ()), dtype or "bytes"])
        bits = _ELEMENT_BITS.get(dtype)
        buffer = None
        padded = 0 if live is None else live.size_bytes or self._padded_bytes(tensor, bits, live)
        if live is not None and padded <= _MAX_SIZE:
            is_tiled = bool(tensor and tensor.layout == "TILE")
            page = live.page_bytes if live.size_bytes or bits is None or not is_tiled else int(128 * bits)
            buffer = Buffer(
                memory=live.memory,
                dtype=dtype,
                tiled=is_tiled,
                sharding=live.sharding,
                padded_bytes=padded,
                page_bytes=page,
                pages=-(-padded // page),
            )
        made = TensorType(
            text=text,
            shape=shape,
            dtype=dtype,
            logical_bytes=None if bits is None or shape is None else int(prod(shape) * bits / 8),
            buffer=buffer,
        )
        if made not in self._type_ids:
            self._type_ids[made] = len(self._types)
            self._types.append(made)
        return self._type_ids[made]

    def _padded_bytes(self, tensor: _Tensor | None, bits: float | None, live: _Live) -> int:
        """Bytes on the device where the source gives only those of a bank, which hold whole pages."""
        if tensor is None or tensor.layout != "TILE" or not tensor.shape or bits is None:
            return live.bank_bytes * (self._device.l1_banks if live.memory == "L1" else self._device.dram_banks)
        *outer, rows, columns = (1, *tensor.shape)
        return int(prod(outer) * -(-rows // 32) * -(-columns // 32) * 128 * bits)

    def _allocations(self) -> Iterator[Allocation]:
        uses: dict[int, int] = {}
        for op, row in enumerate(self._rows):
            if not self._calls[row].name.endswith("deallocate"):
                uses |= dict.fromkeys(self._calls[row].inputs, op)
        for one in self._all:
            tensor = None if one.tensor_id is None else self._tensors.get(one.tensor_id)
            maker = self._calls[self._rows[one.made_by]].name if one.made_by >= 0 else BEFORE
            value = "" if one.tensor_id is None else f"%{one.tensor_id}"
            yield Allocation(
                memory=one.memory,
                address=one.address,
                bank_bytes=one.bank_bytes,
                type=self._type_id(tensor, one),
                owner=f"{maker} {value}".strip(),
                value=value,
                made_by=one.made_by,
                from_op=one.from_op,
                end_op=one.end_op,
                cores=tensor.cores if tensor is not None and one.memory == "L1" else (),
                last_use=NONE if one.tensor_id is None else uses.get(one.tensor_id, NONE),
            )
        for row, size in self._own_buffers:
            yield Allocation(
                memory=L1_TOTAL,
                address=0,
                bank_bytes=size,
                type=self._type_id(None, None),
                owner=f"circular buffers, {self._calls[self._rows[row]].name}",
                made_by=row,
                from_op=row,
                end_op=row + 1,
            )


def _arguments(values: object) -> str:
    """The arguments of a call as Python spelled them: positional ones first, tensors by their number and shape."""
    if not isinstance(values, dict):
        return ""
    given = {str(name): _argument(str(value)) for name, value in values.items()}
    positional = sorted((name for name in given if name.isdecimal()), key=int)
    named = [f"{name}={value}" for name, value in given.items() if not name.isdecimal()]
    return ", ".join([*(given[name] for name in positional), *named])


def _argument(text: str) -> str:
    if _TENSOR_ARGUMENT.match(text):
        number, shape = _TENSOR_ID.search(text), _SHAPE.search(text)
        return (f"%{number[1]}" if number else "host tensor") + (f" {shape[1]}" if shape else "")
    short = _MEMORY_CONFIG.sub(lambda found: f"{found[1]} in {found[2]}", text)
    return short if len(short) <= _LONGEST_ARGUMENT else f"{short[:_LONGEST_ARGUMENT]}..."


def _core_ranges(text: str) -> Iterator[CoreRange]:
    for found in _CORES.findall(text):
        left, top, right, bottom = map(int, found)
        yield CoreRange(left=left, top=top, right=right, bottom=bottom)


_LAST_CORE = 255  # in a row or a column; no device has more, and a damaged file may name billions


def _cores(text: str) -> Iterator[tuple[int, int]]:
    for found in _core_ranges(text):
        for x in range(found.left, min(found.right, _LAST_CORE) + 1):
            for y in range(found.top, min(found.bottom, _LAST_CORE) + 1):
                yield x, y


def _is_in_tensor(values: Json) -> bool:
    """Whether a circular buffer lies in a tensor, and takes nothing of its own."""
    return str(values.get("globally_allocated", "0")) not in {"0", "False", "false"}


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _number(value: object, default: int = 0) -> int:
    """A number that some versions write as text."""
    if isinstance(value, str) and len(value) <= _MAX_DIGITS and value.strip().isdecimal():
        value = int(value)
    # a size that no device has is damage: it would not fit into the columns of a timeline either
    return int(value) if isinstance(value, int | float) and 0 <= value < _MAX_SIZE else default


def _numbers(values: object) -> list[int]:
    return [_number(value) for value in values] if isinstance(values, list) else []
