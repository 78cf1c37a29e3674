"""Graphs to run: by hand, or drawn from a seed."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random

from tests.memory.log_generator.tensors import Tensor


@dataclass(frozen=True)
class Argument:
    """An argument of a graph."""

    name: str
    kind: str  # parameter, constant, input
    tensor: Tensor
    kv_cache: bool = False  # written in place, and kept from pass to pass


@dataclass(frozen=True)
class Op:
    """One op: results come from operands; a view shares the buffer of its first operand."""

    name: str
    op_type: str
    operands: tuple[str, ...]
    results: tuple[tuple[str, Tensor], ...]
    view: bool = False
    in_place: bool = field(default=False, repr=False)  # the result is written over the first operand
    consumes: bool = field(default=False, repr=False)  # the op frees its first operand, as a convolution may
    variadic: bool = False
    properties: str = ""
    callee: str = ""
    location: str = "unknown"
    device: str = ""  # the value of a get_device


@dataclass
class Graph:
    """A compiled graph with its const-evals."""

    module: str
    arguments: list[Argument]
    ops: list[Op] = field(default_factory=list)
    const_evals: dict[str, "Graph"] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    traced: bool = False
    name: str = "main"
    lazy: Random | None = None  # deallocates come late, in any order, or never

    def tensor(self, value: str) -> Tensor | None:
        """What a value is; None for the device itself."""
        if value.startswith("%arg"):
            return self.arguments[int(value[4:])].tensor
        return next((tensor for op in self.ops for name, tensor in op.results if name == value), None)

    @property
    def never_freed(self) -> list[str]:
        """The values that no deallocate names: they end with the program."""
        freed = {op.operands[0] for op in self.scheduled if op.name == "ttnn.deallocate"}
        made = [name for op in self.ops if not op.callee or op.name == "func.call" for name, _ in op.results]
        return [name for name in made if name not in freed and name not in self.outputs]

    @cached_property
    def scheduled(self) -> list[Op]:
        """The ops with a deallocate after each last use, in reverse order of definition."""
        order = [f"%arg{number}" for number in range(len(self.arguments))]
        order += [name for op in self.ops for name, _ in op.results]
        last = {value: number for number, op in enumerate(self.ops) for value in op.operands}
        keeps_arguments = "const_eval" in self.name
        ops = []
        for number, op in enumerate(self.ops):
            ops.append(op)
            dead = {value for value in op.operands if last[value] == number}
            dead |= {name for name, _ in op.results if name not in last}
            for value in sorted(dead & set(order) - set(self.outputs), key=order.index, reverse=True):
                if not (keeps_arguments and value.startswith("%arg")):
                    ops.append(_deallocate(value, op.location))
        return ops if self.lazy is None else _delayed(ops, self.lazy)


def _delayed(ops: list[Op], random: Random) -> list[Op]:
    """The same ops; some deallocates come later, and some are left out."""
    places = []
    for number, op in enumerate(ops):
        is_free = op.name == "ttnn.deallocate"
        if is_free and random.random() < 0.1:
            continue
        places.append((number + (random.choice((0, 0, 3, 7)) + 0.5 if is_free else 0.0), number, op))
    return [op for _, _, op in sorted(places, key=lambda one: one[:2])]


def _deallocate(value: str, location: str) -> Op:
    return Op("ttnn.deallocate", "DeallocateOp", (value,), (), properties="<{force = false}>", location=location)


def known(tensor: Tensor | None) -> Tensor:
    """A tensor that is surely one."""
    assert tensor is not None
    return tensor


class Writer:
    """Adds ops to a graph and gives out SSA names."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.count = 0

    def add(self, name: str, op_type: str, operands: tuple[str, ...], *tensors: Tensor, **more: object) -> str:
        """Add an op; gives its (first) result."""
        named = more.pop("named", None)
        value = f"%{self.count}"
        if name == "ttnn.get_device":
            self.count += 1
            self.graph.ops.append(Op(name, op_type, operands, (), device=value))
            return value
        if not tensors:
            self.graph.ops.append(Op(name=name, op_type=op_type, operands=operands, results=(), **more))  # type: ignore[arg-type]
            return ""
        if isinstance(named, tuple):
            suffix = f"_{self.count}" if self.count else ""
            names = tuple(f"%{part}{suffix}" for part in named)
        else:
            names = (value,) if len(tensors) == 1 else tuple(f"{value}#{index}" for index in range(len(tensors)))
        self.count += 1
        results = tuple(zip(names, tensors, strict=True))
        op = Op(name=name, op_type=op_type, operands=operands, results=results, **more)  # type: ignore[arg-type]
        self.graph.ops.append(op)
        return names[0]


def weight_const_eval(graph: Graph, index: int, tensor: Tensor, *, copies: int = 1) -> tuple[str, tuple[Tensor, ...]]:
    """A const-eval that moves one weight to the device, tiles and transposes it."""
    name = f"main_const_eval_{index}"
    inner = Graph(module=graph.module, arguments=[Argument("", "parameter", tensor)], name=name)
    writer = Writer(inner)
    device = writer.add("ttnn.get_device", "GetDeviceOp", ())
    moved = replace(tensor, memory="DRAM")
    value = writer.add("ttnn.to_device", "ToDeviceOp", ("%arg0", device), moved)
    tiled = replace(moved, tiled=True)
    value = writer.add("ttnn.to_layout", "ToLayoutOp", (value,), tiled, properties="<{layout = #ttnn.layout<tile>}>")
    turned = replace(tiled, shape=(*tiled.shape[:-2], *reversed(tiled.shape[-2:])))
    outputs = [
        writer.add("ttnn.permute", "PermuteOp", (value,), turned, location=f'"transpose.{index}"')
        for _ in range(copies)
    ]
    inner.outputs = tuple(outputs)
    graph.const_evals[name] = inner
    return name, (turned,) * copies


def random_graph(seed: int, *, module: str = "SyncTensorsGraph.1", num_ops: int = 8, traced: bool = False) -> Graph:
    """A graph of random ops over random shapes; equal seeds give equal graphs."""
    random = Random(seed)  # noqa: S311 - no secret
    rows, columns = random.choice((32, 40, 96, 250)), random.choice((64, 128, 500))
    activation = Tensor((1, rows, columns), random.choice(("bf16", "f32")))
    graph = Graph(module=module, arguments=[Argument("args_0", "input", activation)], traced=traced)
    for index in range(random.randint(1, 3)):
        host = random.random() < 0.7
        weight = Tensor((columns, columns), activation.dtype, "host" if host else "DRAM", tiled=not host)
        graph.arguments.append(Argument(f"{module}.layers.{index}.weight", "parameter", weight))
    graph.arguments.append(Argument(f"{module}.pos_embed", "constant", activation))
    writer = Writer(graph)
    weights = _load_weights(graph, writer, random)
    writer.add("ttnn.get_device", "GetDeviceOp", ())
    values = ["%arg0", f"%arg{len(graph.arguments) - 1}"]
    for index in range(num_ops):
        values.append(_random_op(graph, writer, random, values, weights, f'"op.{index}"'))
    graph.outputs = (values[-1],)
    return graph


def _load_weights(graph: Graph, writer: Writer, random: Random) -> list[str]:
    weights = []
    for index, argument in enumerate(graph.arguments):
        if argument.kind != "parameter":
            continue
        value = f"%arg{index}"
        if argument.tensor.memory == "host":
            copies = random.choice((1, 1, 2))
            name, tensors = weight_const_eval(graph, len(graph.const_evals), argument.tensor, copies=copies)
            value = writer.add(
                "ttcore.load_cached", "LoadCachedOp", (value,), *tensors, callee=name, variadic=copies > 1
            )
        weights.append(value)
    return weights


def _random_op(
    graph: Graph, writer: Writer, random: Random, values: list[str], weights: list[str], location: str
) -> str:
    value = random.choice(values[-3:])
    tensor = known(graph.tensor(value))
    kind = random.choice(("add", "view", "pad", "matmul", "shard", "split", "block_float", "unary", "row_major"))
    flat = Tensor((tensor.shape[0] * tensor.shape[1], *tensor.shape[2:]), tensor.dtype)
    if kind == "add":
        same = [other for other in values if graph.tensor(other) == tensor]
        return writer.add("ttnn.add", "EltwiseBinaryOp", (value, random.choice(same)), tensor, location=location)
    if kind == "view" and tensor.memory == "DRAM" and tensor.tiled and tensor.shape[0] == 1 and len(tensor.shape) == 3:
        return writer.add("ttnn.reshape", "ReshapeOp", (value,), flat, view=True, location=location)
    if kind == "pad" and tensor.shape[-1] % 2 == 0 and tensor.memory == "DRAM":
        thin = Tensor((*tensor.shape[:-1], tensor.shape[-1] // 2, 2), "f32")
        return writer.add("ttnn.reshape", "ReshapeOp", (value,), thin, location=location)
    if kind == "matmul" and tensor.shape[-1] == known(graph.tensor(weights[0])).shape[0] and tensor.memory == "DRAM":
        weight = random.choice(weights)
        return writer.add("ttnn.matmul", "MatmulOp", (value, weight), replace(tensor, tiled=True), location=location)
    if kind == "shard" and tensor.memory == "DRAM" and tensor.padded_bytes() < 8 << 20:
        sharded = Tensor(tensor.shape, tensor.dtype, "L1", grid=(8, 8))
        return writer.add("ttnn.to_memory_config", "ToMemoryConfigOp", (value,), sharded, location=location)
    if kind == "split":
        part = replace(tensor, tiled=True)
        named = ("query", "key", "value")
        return writer.add(
            "ttnn.split_query_key_value_and_split_heads",
            "SplitQueryKeyValueAndSplitHeadsOp",
            (value,),
            part,
            part,
            part,
            named=named,
            location=location,
        )
    if kind == "block_float":
        packed = Tensor(tensor.shape, random.choice(("bfp_bf8", "bfp_bf4")))
        return writer.add("ttnn.typecast", "TypecastOp", (value,), packed, location=location)
    if kind == "row_major" and tensor.dtype in {"f32", "bf16"}:
        return writer.add("ttnn.to_layout", "ToLayoutOp", (value,), Tensor(tensor.shape, tensor.dtype, tiled=False))
    return writer.add("ttnn.gelu", "EltwiseUnaryOp", (value,), replace(tensor, tiled=True), location=location)
