"""A language model being served: prefills of several lengths and decode steps that share weights and a KV cache.

What is hard about such a log stands here on purpose: every graph is called `main`; the prefills have the same ops with
other shapes; a const-eval has another number in another graph but the same hash; weights that lie on the device belong
to several graphs; and the passes of one graph do not repeat byte for byte, as the device fills up around them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.memory.log_generator.device import Memory, wormhole
from tests.memory.log_generator.graphs import Argument, Graph, Writer, weight_const_eval
from tests.memory.log_generator.run import Host, Truth, execute
from tests.memory.log_generator.style import Style, written
from tests.memory.log_generator.tensors import Tensor

STAGES = ("vhlo", "shlo_frontend", "shlo_compiler_cleaned", "ttir", "ttnn", "ttnn_runtime")


@dataclass(frozen=True)
class Model:
    """The sizes of a model."""

    width: int
    layers: int
    context: int
    cache_dtype: str
    embedding_on_device: bool
    seed: int


def random_model(seed: int) -> Model:
    """Sizes drawn from a seed: round ones and odd ones."""
    random = Random(seed)  # noqa: S311 - no secret
    return Model(
        width=random.choice((64, 96, 250, 512, 1000)),
        layers=random.randint(1, 3),
        context=random.choice((64, 100, 128)),
        cache_dtype=random.choice(("bf16", "bfp_bf8")),
        embedding_on_device=random.random() < 0.7,
        seed=seed,
    )


def step_graph(model: Model, tokens: int, *, module: str, reverse: bool = False) -> Graph:
    """A prefill of some tokens, or a decode step of one; `reverse` loads the weights in the opposite order."""
    hidden = Tensor((1, tokens, model.width))
    graph = Graph(module=module, arguments=[Argument("args_0", "input", Tensor((1, tokens, model.width)))])
    writer = Writer(graph)
    caches = _add_caches(graph, model)
    device_weights = _add_device_weights(graph, model)
    weights = _add_host_weights(graph, writer, model, reverse=reverse)
    writer.add("ttnn.get_device", "GetDeviceOp", ())
    value = writer.add("ttnn.multiply", "EltwiseBinaryOp", ("%arg0", device_weights[0]), hidden, location='"scale"')
    for layer in range(model.layers):
        value = _layer(writer, model, hidden, value, (caches[layer], weights[layer]), layer)
    flat = Tensor((tokens, model.width))
    value = writer.add("ttnn.reshape", "ReshapeOp", (value,), flat, view=True, location='"flatten"')
    graph.outputs = (writer.add("ttnn.matmul", "MatmulOp", (value, weights[-1]), Tensor((tokens, model.width), "f32")),)
    return graph


def _add_caches(graph: Graph, model: Model) -> list[str]:
    values = []
    for layer in range(model.layers):
        tensor = Tensor((1, 2, model.context, 32), model.cache_dtype)
        graph.arguments.append(Argument(f"cache.{layer}", "input", tensor, kv_cache=True))
        values.append(f"%arg{len(graph.arguments) - 1}")
    return values


def _add_device_weights(graph: Graph, model: Model) -> list[str]:
    memory = "DRAM" if model.embedding_on_device else "host"
    scale = Tensor((1, 1, model.width), "bf16", "DRAM")
    graph.arguments.append(Argument("model.scale", "parameter", scale))
    graph.arguments.append(Argument("model.embedding", "parameter", Tensor((500, model.width), "bf16", memory)))
    return [f"%arg{len(graph.arguments) - 2}", f"%arg{len(graph.arguments) - 1}"]


def _add_host_weights(graph: Graph, writer: Writer, model: Model, *, reverse: bool) -> list[str]:
    """One weight per layer and a head, each prepared by a const-eval; the head is the largest."""
    names = [*(f"model.layers.{layer}.weight" for layer in range(model.layers)), "model.head.weight"]
    loaded: dict[str, str] = {}
    for name in reversed(names) if reverse else names:
        tensor = Tensor((model.width, model.width), "bf16", "host", tiled=False)
        if name == "model.head.weight":
            tensor = Tensor((model.width, model.width), "f32", "host", tiled=False)
        graph.arguments.append(Argument(name, "parameter", tensor))
        callee, tensors = weight_const_eval(graph, len(graph.const_evals), tensor)
        operand = f"%arg{len(graph.arguments) - 1}"
        loaded[name] = writer.add("ttcore.load_cached", "LoadCachedOp", (operand,), *tensors, callee=callee)
    return [loaded[name] for name in names]


def _layer(writer: Writer, model: Model, hidden: Tensor, value: str, uses: tuple[str, str], layer: int) -> str:
    cache, weight = uses
    place = f'"{layer}|Model[]|Layer[layers.{layer}]|net.py:10|forward|12|aten__linear"'
    heads = Tensor((1, 2, hidden.shape[1], 32))
    mixed = writer.add("ttnn.matmul", "MatmulOp", (value, weight), hidden, location=place)
    new = writer.add("ttnn.slice_static", "SliceOp", (mixed,), heads, location=place)
    writer.add("ttnn.update_cache", "UpdateCacheOp", (cache, new), location=place)
    scores = writer.add("ttnn.softmax", "SoftmaxOp", (cache,), Tensor((1, 2, hidden.shape[1], model.context), "f32"))
    sharded = writer.add(
        "ttnn.to_memory_config", "ToMemoryConfigOp", (mixed,), replace(hidden, memory="L1", grid=(8, 8))
    )
    active = writer.add("ttnn.gelu", "EltwiseUnaryOp", (sharded,), replace(hidden, memory="L1", grid=(8, 8)))
    back = writer.add("ttnn.to_memory_config", "ToMemoryConfigOp", (active,), hidden)
    summed = writer.add("ttnn.sum", "ReductionOp", (scores,), Tensor((1, 2, hidden.shape[1], 1), "f32"), location=place)
    scaled = writer.add("ttnn.multiply", "EltwiseBinaryOp", (back, summed), hidden, location=place)
    return writer.add("ttnn.add", "EltwiseBinaryOp", (value, scaled), hidden, location=place)


def serving_graphs(model: Model, lengths: Sequence[int] = (32, 64)) -> list[Graph]:
    """Prefills of each length, then the decode step."""
    prefills = [
        step_graph(model, tokens, module=f"SyncTensorsGraph.{100 + number}") for number, tokens in enumerate(lengths)
    ]
    return [*prefills, step_graph(model, 1, module="SyncTensorsGraph.900", reverse=True)]


def serving_log(
    seed: int,
    *,
    order: Sequence[int] = (0, 2, 2, 1, 2, 0, 2, 1, 2, 2),
    style: Style | None = None,
    memories: dict[str, Memory] | None = None,
    host: Host | None = None,
) -> tuple[bytes, Truth]:
    """Two prefills and decode steps in some order."""
    graphs = serving_graphs(random_model(seed))
    chosen = style or Style(stages=STAGES)
    runtime = execute(graphs, style=chosen, memories=memories, host=host, order=order)
    return written(runtime.lines, chosen), runtime.truth


def ranked_log(seed: int, *, late: bool = False, style: Style | None = None) -> tuple[bytes, list[Truth]]:
    """Two processes with different models, hence different memory, whose lines are interleaved at random.

    With `late`, rank [1,1] speaks first.
    """
    random = Random(seed)  # noqa: S311 - no secret
    chosen = style or Style(stages=STAGES)
    runs = [
        execute(serving_graphs(random_model(seed + rank)), style=chosen, order=(0, 2, 1, 2), memories=wormhole())
        for rank in range(2)
    ]
    waiting = [list(reversed(run.lines)) for run in runs]
    first = waiting[1][-5:] if late else []
    lines = [f"[1,1]<stdout>: {line}" for line in reversed(first)]
    del waiting[1][len(waiting[1]) - len(first) :]
    while waiting[0] or waiting[1]:
        rank = random.choice([rank for rank in range(2) if waiting[rank]])
        for _ in range(min(random.randint(1, 4), len(waiting[rank]))):
            lines.append(f"[1,{rank}]<stdout>: {waiting[rank].pop()}")
    return "\n".join([*lines, ""]).encode(), [run.truth for run in runs]
