"""Graphs with everything that makes live tensors hard to follow, drawn from a seed.

Tensors below the resolution of the log, views of views and of arguments, reshapes that copy, several results of which
some lie in L1, const-evals of several weights or of none, on the CPU, or of a weight that stays on the device,
arguments that nothing reads, outputs that are arguments or views, and graphs that share some of their weights.
"""

from dataclasses import dataclass, replace
from random import Random

from tests.memory.log_generator.graphs import Argument, Graph, Op, Writer, known
from tests.memory.log_generator.tensors import Tensor

_SHAPES = ((1, 37, 64), (2, 128, 96), (1, 1, 32), (4, 33, 250), (1, 512, 768), (7,), (1000,), (1, 8, 64, 40))


@dataclass(frozen=True)
class Traits:
    """What makes graphs harder to tell apart."""

    lazy: bool = False  # deallocates come late, or never, and ops reuse buffers
    alike: bool = False  # all weights have one shape
    namesakes: bool = False  # weights that differ have the same name
    caches: bool = False  # KV caches that ops update in place
    traced: float = 0.0  # the probability that a graph is captured, and replayed afterwards


def irregular_graphs(seed: int, *, num_graphs: int = 3, num_ops: int = 12, traits: Traits | None = None) -> list[Graph]:
    """Graphs that share weights, each called `main`."""
    random, chosen = Random(seed), traits or Traits()  # noqa: S311 - no secret
    shared = [_weight(random, f"shared.{number}") for number in range(3)]
    if chosen.alike:
        shared = [replace(shared[0], name=one.name) for one in shared]
    graphs = [_graph(random, number, shared, num_ops) for number in range(num_graphs)]
    more = Random(seed + 1)  # noqa: S311 - no secret
    for graph in graphs:
        _make_harder(more, graph, chosen)
    return [_reusing(random, graph) for graph in graphs] if chosen.lazy else graphs


def _make_harder(random: Random, graph: Graph, traits: Traits) -> None:
    if traits.namesakes:
        for number, one in enumerate(graph.arguments):
            if one.name.startswith("graph") and random.random() < 0.5:
                graph.arguments[number] = replace(one, name="graph.weight")
    if traits.caches:
        cache = Tensor((1, 2, 96, 32), random.choice(("bf16", "bfp_bf8")))
        for layer in range(2):
            graph.arguments.append(Argument(f"cache.{layer}", "input", cache, kv_cache=True))
            value = f"%arg{len(graph.arguments) - 1}"
            at = random.randint(len(graph.const_evals), len(graph.ops))
            source = random.choice([name for op in graph.ops[:at] for name, _ in op.results] or ["%arg0"])
            graph.ops.insert(
                at, Op("ttnn.update_cache", "UpdateCacheOp", (value, source), (), location=f'"cache.{layer}"')
            )
    graph.traced = random.random() < traits.traced
    if graph.traced:
        graph.ops.insert(len(graph.const_evals), Op("ttnn.get_device", "GetDeviceOp", (), (), device="%900"))


def _reusing(random: Random, graph: Graph) -> Graph:
    """A graph with ops that write over an operand or free it, and with deallocates anywhere."""
    uses = [value for op in graph.ops for value in op.operands]
    loaded = {name for op in graph.ops if op.callee for name, _ in op.results}
    views = {value for op in graph.ops if op.view for value in (op.operands[0], op.results[0][0])}
    for number, op in enumerate(graph.ops):
        first = op.operands[0] if op.operands else ""
        is_free = bool(first) and not first.startswith("%arg") and uses.count(first) == 1
        if op.callee or op.view or len(op.results) != 1 or not is_free or {first, op.results[0][0]} & (loaded | views):
            continue
        if first in graph.outputs or known(graph.tensor(first)).memory != op.results[0][1].memory:
            continue
        before, after = known(graph.tensor(first)), op.results[0][1]
        is_alike = before == after
        is_other = before.padded_bytes() != after.padded_bytes()  # else no reading tells a new buffer from a reused one
        chosen = random.random()
        graph.ops[number] = replace(op, in_place=is_alike and chosen < 0.5, consumes=is_other and chosen < 0.4)
    graph.lazy = Random(random.random())  # noqa: S311 - no secret
    return graph


def _weight(random: Random, name: str) -> Argument:
    dtype, shape = (
        random.choice(("bf16", "f32")),
        random.choice(((64, 64), (96, 250), (512, 768), (768,), (2, 3, 5, 5))),
    )
    on_device = random.random() < 0.4
    tensor = Tensor(shape, dtype, "DRAM" if on_device else "host", tiled=on_device and random.random() < 0.7)
    return Argument(name, random.choice(("parameter", "parameter", "constant")), tensor)


def _graph(random: Random, number: int, shared: list[Argument], num_ops: int) -> Graph:
    shape = random.choice(_SHAPES)
    first = Tensor(shape, random.choice(("bf16", "f32")))
    graph = Graph(module=f"SyncTensorsGraph.{10 * number + 3}", arguments=[Argument("args_0", "input", first)])
    own = [_weight(random, f"graph{number}.{index}") for index in range(random.randint(0, 2))]
    graph.arguments += [*random.sample(shared, random.randint(1, 3)), *own]
    if random.random() < 0.5:
        unused = Tensor(random.choice(_SHAPES), "bf16")
        graph.arguments.append(Argument("args_1", "input", unused))
    writer = Writer(graph)
    values = ["%arg0", *_const_evals(random, graph, writer)]
    for index in range(num_ops + random.randint(0, 4)):
        values += _op(random, graph, writer, values, f'"op.{index}"')
    outputs = [values[-1], *(random.sample(values, 1) if random.random() < 0.4 else [])]
    graph.outputs = tuple(dict.fromkeys(outputs))
    return graph


def _const_evals(random: Random, graph: Graph, writer: Writer) -> list[str]:
    """Prepare the weights: alone, in pairs, or on the CPU; and a constant made of nothing."""
    weights = [
        f"%arg{index}" for index, one in enumerate(graph.arguments) if one.kind != "input" and random.random() < 0.85
    ]
    values = []
    while weights:
        group = [weights.pop() for _ in range(min(len(weights), random.choice((1, 1, 2))))]
        values += _const_eval(random, graph, writer, group)
    if random.random() < 0.5:
        values += _const_eval(random, graph, writer, [])
    return values


def _const_eval(random: Random, graph: Graph, writer: Writer, operands: list[str]) -> list[str]:
    name = f"main_const_eval_{len(graph.const_evals)}"
    given = [known(graph.tensor(value)) for value in operands]
    inner = Graph(graph.module, [Argument("", "parameter", tensor) for tensor in given], name=name)
    inside = Writer(inner)
    device = inside.add("ttnn.get_device", "GetDeviceOp", ())
    made = [_prepared(random, inside, f"%arg{index}", tensor, device) for index, tensor in enumerate(given)]
    if not given:
        made = [
            inside.add("ttnn.full", "FullOp", (device,), Tensor(random.choice(((1, 1), (32, 64), (300, 300))), "f32"))
        ]
    graph.const_evals[name] = inner
    inner.outputs = tuple(made)
    tensors = tuple(known(inner.tensor(value)) for value in made)
    first = writer.add(
        "ttcore.load_cached", "LoadCachedOp", tuple(operands), *tensors, callee=name, variadic=len(tensors) > 1
    )
    return [first] if len(tensors) == 1 else [f"{first.partition('#')[0]}#{index}" for index in range(len(tensors))]


def _prepared(random: Random, inside: Writer, value: str, tensor: Tensor, device: str) -> str:
    moved = replace(tensor, memory="DRAM")
    if tensor.memory == "host":
        if random.random() < 0.3:  # on the CPU, the default since 2026-03
            cast = replace(tensor, dtype="f32")
            value = inside.add("ttnn.typecast", "TypecastOp", (value,), cast)
            callee = "cpu_hoisted_const_eval_5be1"
            value = inside.add("func.call", "CpuOp", (value,), cast, callee=callee, properties="{ttir.cpu_hoist_call}")
            moved = replace(cast, memory="DRAM")
        value = inside.add("ttnn.to_device", "ToDeviceOp", (value, device), moved)
    if not moved.tiled:
        moved = replace(moved, tiled=True)
        value = inside.add("ttnn.to_layout", "ToLayoutOp", (value,), moved)
    if random.random() < 0.5:
        packed = replace(moved, dtype="bfp_bf8")
        return inside.add("ttnn.typecast", "TypecastOp", (value,), packed)
    return inside.add("ttnn.multiply", "EltwiseBinaryOp", (value, value), moved)


def _op(random: Random, graph: Graph, writer: Writer, values: list[str], location: str) -> list[str]:
    value = random.choice(values[-4:])
    tensor = known(graph.tensor(value))
    kind = random.choice(("unary", "view", "copy", "split", "small", "l1", "binary", "cache", "host", "row_major"))
    size = tensor.shape[-1]
    is_plain = tensor.memory == "DRAM" and tensor.tiled and tensor.grid is None
    flat = (1,) * (4 - len(tensor.shape)) + tensor.shape
    if kind == "view" and is_plain and len(tensor.shape) > 1:
        return [
            writer.add("ttnn.reshape", "ReshapeOp", (value,), replace(tensor, shape=flat), view=True, location=location)
        ]
    if kind == "copy" and is_plain and size % 2 == 0:
        thin = replace(tensor, shape=(*tensor.shape[:-1], size // 2, 2))
        return [writer.add("ttnn.reshape", "ReshapeOp", (value,), thin, location=location)]
    if kind == "split":
        parts = [Tensor(tensor.shape, "bf16"), Tensor((1, 32), "f32"), Tensor((1, 64, 64), "bf16", "L1")]
        first = writer.add(
            "ttnn.topk", "TopKOp", (value,), *parts, named=("values", "indices", "rest"), location=location
        )
        return [first, first.replace("values", "indices"), first.replace("values", "rest")]
    if kind == "small":
        return [
            writer.add("ttnn.sum", "ReductionOp", (value,), Tensor((*tensor.shape[:-1], 1), "f32"), location=location)
        ]
    if kind == "l1" and tensor.padded_bytes() < 4 << 20:
        grid = random.choice((None, (8, 8), (4, 2)))
        moved = Tensor(tensor.shape, tensor.dtype, "L1", grid=grid)
        return [writer.add("ttnn.to_memory_config", "ToMemoryConfigOp", (value,), moved, location=location)]
    if kind == "cache":
        writer.add("ttnn.update_cache", "UpdateCacheOp", (value, value), location=location)
        return []
    if kind == "host" and tensor.dtype in {"bf16", "f32"}:
        plain = Tensor(tensor.shape, tensor.dtype, "host", tiled=False)
        writer.add("ttnn.from_device", "FromDeviceOp", (value,), plain, location=location)
        return []
    if kind == "row_major" and tensor.dtype in {"bf16", "f32"}:
        memory = random.choice(("DRAM", "L1")) if tensor.padded_bytes() < 4 << 20 else "DRAM"
        rows = Tensor(tensor.shape, tensor.dtype, memory, tiled=False)
        return [writer.add("ttnn.to_layout", "ToLayoutOp", (value,), rows, location=location)]
    if kind == "binary":
        other = random.choice(values)
        return [writer.add("ttnn.add", "EltwiseBinaryOp", (value, other), Tensor(tensor.shape), location=location)]
    return [writer.add("ttnn.gelu", "EltwiseUnaryOp", (value,), Tensor(tensor.shape, "f32"), location=location)]
