"""A log whose memory readings come from the allocator of real ttnn on its mock device, with all addresses beside it.

    python -m tests.memory.log_generator.real_allocator SEED FOLDER

Runs in an environment with ttnn. Uploads and ops are real, lines are those of the tt-mlir runtime, and every reading is
`ttnn.get_memory_view`. The folder gets `run.log`, `truth.json` (the address and size of every block
before each op) and `report.json`, ttnn's own graph capture of the same run.
"""

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

from tests.memory.log_generator.device import Allocation, Memory
from tests.memory.log_generator.graphs import Argument, Graph, Op, Writer, known
from tests.memory.log_generator.run import Host, Row, Runtime
from tests.memory.log_generator.serving import STAGES
from tests.memory.log_generator.style import Style, written
from tests.memory.log_generator.tensors import Tensor

_ORDER = (0, 1, 0, 0, 1, 1, 0, 1)


def device_graph(seed: int, module: str, shared: list[Argument]) -> Graph:
    """Ops that ttnn runs as they are, in DRAM and L1, over shapes drawn from a seed."""
    random = Random(seed)  # noqa: S311 - no secret
    columns = shared[0].tensor.shape[-1]
    hidden = Tensor((1, random.choice((32, 96, 250, 700)), columns))
    graph = Graph(module, [Argument("args_0", "input", hidden), *shared])
    writer = Writer(graph)
    writer.add("ttnn.get_device", "GetDeviceOp", ())
    values = ["%arg0"]
    for index in range(14):
        values.append(_add_op(random, graph, writer, values, f'"op.{index}"'))
    graph.outputs = (values[-1],)
    return graph


def _add_op(random: Random, graph: Graph, writer: Writer, values: list[str], location: str) -> str:
    value = random.choice(values[-3:])
    tensor = known(graph.tensor(value))
    kind = random.choice(("gelu", "add", "matmul", "l1", "pack", "dram"))
    if kind == "add":
        other = random.choice([one for one in values if graph.tensor(one) == tensor])
        return writer.add("ttnn.add", "EltwiseBinaryOp", (value, other), tensor, location=location)
    if kind == "matmul" and tensor == Tensor(tensor.shape):
        weight = f"%arg{random.randint(1, len(graph.arguments) - 1)}"
        return writer.add("ttnn.matmul", "MatmulOp", (value, weight), tensor, location=location)
    if kind == "pack" and tensor.dtype == "bf16":
        packed = Tensor(tensor.shape, "bfp_bf8", tensor.memory)
        return writer.add("ttnn.typecast", "TypecastOp", (value,), packed, location=location)
    if kind in {"l1", "dram"} and tensor.memory != kind.upper():
        moved = Tensor(tensor.shape, tensor.dtype, kind.upper())
        return writer.add("ttnn.to_memory_config", "ToMemoryConfigOp", (value,), moved, location=location)
    return writer.add("ttnn.gelu", "EltwiseUnaryOp", (value,), tensor, location=location)


class DeviceMemory(Memory):
    """One memory of a real allocator; the blocks are those that this run allocated."""

    def __init__(self, name: str, view: Any) -> None:
        self._view = view
        now = view()
        super().__init__(name, now.num_banks, now.total_bytes_per_bank, top_down=name != "DRAM")
        self.bottom: int | None = None

    @property
    def allocated(self) -> int:
        return int(self._view().total_bytes_allocated_per_bank)

    @property
    def largest(self) -> int:
        return int(self._view().largest_contiguous_bytes_free_per_bank)

    def place(self, address: int, size: int) -> int:
        """Note a block; addresses count from the bottom of what the allocator manages."""
        if self.bottom is None:
            self.bottom = address + size - self.capacity if self.top_down else address
        self.blocks = sorted([*self.blocks, (address - self.bottom, size)])
        return address - self.bottom


class DeviceRuntime(Runtime):
    """The runtime on a real device: each buffer is one of ttnn."""

    def __init__(self, ttnn: Any, device: Any, host: Host) -> None:
        views = {
            name: DeviceMemory(name, lambda kind=kind: ttnn.get_memory_view(device, getattr(ttnn.BufferType, kind)))
            for name, kind in {"DRAM": "DRAM", "L1": "L1", "L1_SMALL": "L1_SMALL", "TRACE": "TRACE"}.items()
        }
        super().__init__(Style(stages=STAGES), dict(views), host)
        self._ttnn, self._device = ttnn, device
        self._tensors: dict[int, Any] = {}
        self.events: list[tuple[str, int, int]] = []  # memory, address and size of each allocation, in order

    def _allocate(self, tensor: Tensor, *, owner: str) -> Allocation:
        ttnn = self._ttnn
        made = ttnn.allocate_tensor_on_device(
            ttnn.Shape(list(tensor.shape)), self._dtype(tensor), ttnn.TILE_LAYOUT, self._device, self._config(tensor)
        )
        return self._note(made, tensor, owner)

    def _note(self, made: Any, tensor: Tensor, owner: str) -> Allocation:
        memory = self.memories[tensor.memory]
        assert isinstance(memory, DeviceMemory)
        size = tensor.bank_bytes(memory.banks, memory.row_alignment)
        self.events.append((tensor.memory, made.buffer_address(), size))
        at = memory.place(made.buffer_address(), size)
        allocation = Allocation(memory, at, size, owner, tensor.padded_bytes(), tensor.logical_bytes())
        self.allocated.append(allocation)
        self._tensors[id(allocation)] = made
        return allocation

    def _release(self, allocation: Allocation) -> None:
        if allocation.names == 1:
            self._ttnn.deallocate(self._tensors.pop(id(allocation)))
        super()._release(allocation)

    def _execute(
        self, graph: Graph, op: Op, row: Row, index: int, pass_index: int, values: dict[str, Allocation | None]
    ) -> None:
        if op.name == "ttnn.deallocate" or not op.results:
            super()._execute(graph, op, row, index, pass_index, values)
            return
        operands = [self._tensors[id(values[value])] for value in op.operands]
        name, tensor = op.results[0]
        more: tuple[Any, ...] = ()
        if op.name == "ttnn.to_memory_config":
            more = (self._config(tensor),)
        elif op.name == "ttnn.typecast":
            more = (self._dtype(tensor),)
        made = getattr(self._ttnn, op.name.partition(".")[2])(*operands, *more)
        values[name] = self._note(made, tensor, f"{op.name} {name}")

    def _dtype(self, tensor: Tensor) -> Any:
        return self._ttnn.bfloat8_b if tensor.dtype == "bfp_bf8" else self._ttnn.bfloat16

    def _config(self, tensor: Tensor) -> Any:
        return self._ttnn.L1_MEMORY_CONFIG if tensor.memory == "L1" else self._ttnn.DRAM_MEMORY_CONFIG


def main() -> None:
    """Run, and write the three files."""
    import ttnn  # only in its own environment

    seed, folder = int(sys.argv[1]), Path(sys.argv[2])
    random = Random(seed)  # noqa: S311 - no secret
    columns = random.choice((64, 256, 1000))
    shared = [Argument(f"layers.{index}.weight", "parameter", Tensor((columns, columns))) for index in range(3)]
    device = ttnn.open_device(device_id=0, l1_small_size=24576)
    host = Host(keeps_outputs=seed % 3 == 1, replaces_outputs=seed % 3 == 2, keeps_inputs=seed % 2 == 1)
    runtime = DeviceRuntime(ttnn, device, host)
    for number in range(2):
        runtime.compile(device_graph(2 * seed + number, f"SyncTensorsGraph.{number}", shared))
    capture = ttnn._ttnn.graph  # the wrapper in Python records arguments, which needs torch
    capture.begin_graph_capture(capture.RunMode.NORMAL)
    for index in _ORDER:
        runtime.run(index)
    captured = capture.end_graph_capture()
    (folder / "run.log").write_bytes(written(runtime.lines, runtime.style))
    (folder / "report.json").write_text(json.dumps(captured), encoding="utf-8")
    rows = [{"live": row.live, "blocks": row.blocks} for row in runtime.truth.rows]
    truth = {"rows": rows, "events": runtime.events}
    (folder / "truth.json").write_text(json.dumps(truth), encoding="utf-8")
    ttnn.close_device(device)


if __name__ == "__main__":
    main()
