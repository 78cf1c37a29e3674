"""The logs that `ttmem demo` shows: a small vision model, once as it should be and once out of memory.

`python -m tests.memory.log_generator.demo` writes them into the package.
"""

import gzip
from pathlib import Path

from tests.memory.log_generator.device import MIB, wormhole
from tests.memory.log_generator.graphs import Argument, Graph, Writer, weight_const_eval
from tests.memory.log_generator.run import generate
from tests.memory.log_generator.style import Style
from tests.memory.log_generator.tensors import Tensor

PACKAGE = Path(__file__).parents[3] / "src" / "torchstone" / "memory" / "demo"
TOKENS, WIDTH, BLOCKS = 1000, 768, 2
_SPLIT = ("ttnn.split_query_key_value_and_split_heads", "SplitQueryKeyValueAndSplitHeadsOp")

_ATTENTION = ("ttnn.scaled_dot_product_attention", "ScaledDotProductAttentionOp")


def _place(number: int, path: str, class_name: str, line: int, op: str) -> str:
    outer = f"Block[{path[:8]}]|" if path.startswith("blocks.") else ""
    return f'"{number}|VisionNet[]|{outer}{class_name}[{path}]|net.py:{line - 3}|forward|{line}|aten__{op}"'


def vision_graph() -> Graph:
    """Two blocks with attention and a wide layer, then coordinates with a last dim of two."""
    tokens = Tensor((1, TOKENS, WIDTH))
    graph = Graph(module="SyncTensorsGraph.215", arguments=[Argument("args_0", "input", tokens)])
    graph.arguments.append(Argument("pos_embed", "constant", tokens))
    writer = Writer(graph)
    weights = [_block_weights(graph, writer, block) for block in range(BLOCKS)]
    writer.add("ttnn.get_device", "GetDeviceOp", ())
    value = writer.add(
        "ttnn.add", "EltwiseBinaryOp", ("%arg0", "%arg1"), tokens, location=_place(1, "embed", "Embed", 31, "add")
    )
    for block in range(BLOCKS):
        value = _block(writer, value, weights[block], f"blocks.{block}")
    return _head(graph, writer, value)


def _block_weights(graph: Graph, writer: Writer, block: int) -> list[str]:
    values = []
    for name, shape in (
        ("attn.qkv", (WIDTH * 3, WIDTH)),
        ("mlp.fc1", (WIDTH * 4, WIDTH)),
        ("mlp.fc2", (WIDTH, WIDTH * 4)),
    ):
        tensor = Tensor(shape, "bf16", "host", tiled=False)
        graph.arguments.append(Argument(f"blocks.{block}.{name}.weight", "parameter", tensor))
        argument = f"%arg{len(graph.arguments) - 1}"
        callee, tensors = weight_const_eval(graph, len(graph.const_evals), tensor)
        values.append(writer.add("ttcore.load_cached", "LoadCachedOp", (argument,), *tensors, callee=callee))
    return values


def _block(writer: Writer, value: str, weights: list[str], path: str) -> str:
    tokens, wide = Tensor((1, TOKENS, WIDTH)), Tensor((1, TOKENS, WIDTH * 4))
    heads, sharded = Tensor((1, 12, TOKENS, 64)), Tensor((1, TOKENS, WIDTH * 4), "bf16", "L1", grid=(8, 8))
    attention = _place(12, f"{path}.attn", "Attention", 48, "linear")
    mlp = _place(20, f"{path}.mlp", "Mlp", 60, "linear")
    qkv = writer.add("ttnn.matmul", "MatmulOp", (value, weights[0]), Tensor((1, TOKENS, WIDTH * 3)), location=attention)
    query = writer.add(*_SPLIT, (qkv,), heads, heads, heads, named=("query", "key", "value"), location=attention)
    key, values = (query.replace("query", part) for part in ("key", "value"))
    mixed = writer.add(
        "ttnn.scaled_dot_product_attention",
        "ScaledDotProductAttentionOp",
        (query, key, values),
        heads,
        location=attention,
    )
    mixed = writer.add("ttnn.concatenate_heads", "ConcatenateHeadsOp", (mixed,), tokens, location=attention)
    value = writer.add("ttnn.add", "EltwiseBinaryOp", (value, mixed), tokens, location=attention)
    grown = writer.add("ttnn.matmul", "MatmulOp", (value, weights[1]), wide, location=mlp)
    moved = writer.add("ttnn.to_memory_config", "ToMemoryConfigOp", (grown,), sharded, location=mlp)
    active = writer.add("ttnn.gelu", "EltwiseUnaryOp", (moved,), sharded, location=mlp)
    back = writer.add("ttnn.to_memory_config", "ToMemoryConfigOp", (active,), wide, location=mlp)
    shrunk = writer.add("ttnn.matmul", "MatmulOp", (back, weights[2]), tokens, location=mlp)
    return writer.add("ttnn.add", "EltwiseBinaryOp", (value, shrunk), tokens, location=mlp)


def _head(graph: Graph, writer: Writer, value: str) -> Graph:
    pairs = Tensor((1, TOKENS, WIDTH // 2, 2), "f32")
    head = _place(41, "head.coordinates", "Coordinates", 77, "view")
    value = writer.add("ttnn.typecast", "TypecastOp", (value,), Tensor((1, TOKENS, WIDTH), "f32"), location=head)
    value = writer.add("ttnn.reshape", "ReshapeOp", (value,), pairs, location=head)
    value = writer.add("ttnn.multiply", "EltwiseBinaryOp", (value, value), pairs, location=head)
    value = writer.add("ttnn.sum", "ReductionOp", (value,), Tensor((1, TOKENS, 2), "f32"), location=head)
    graph.outputs = (value,)
    return graph


def scores_graph() -> Graph:
    """A second, small graph, called `main` like the first."""
    scores = Tensor((1, TOKENS, 32), "f32")
    graph = Graph(module="SyncTensorsGraph.19", arguments=[Argument("args_0", "input", scores)])
    writer = Writer(graph)
    value = writer.add("ttnn.softmax", "SoftmaxOp", ("%arg0",), scores, location='"softmax.9"')
    graph.outputs = (writer.add("ttnn.argmax", "ReductionArgMaxOp", (value,), Tensor((1, TOKENS), "si32")),)
    return graph


def healthy_log() -> bytes:
    """Three passes of both graphs."""
    return generate([vision_graph(), scores_graph()], passes=3, style=Style(level="any"))[0]


def failing_log() -> bytes:
    """The same model on a device with too little memory."""
    memories = wormhole(dram_bytes=9 * MIB)
    return generate([vision_graph(), scores_graph()], passes=3, style=Style(level="any"), memories=memories)[0]


def packed(log: bytes) -> bytes:
    """A log as it stands in the package."""
    return gzip.compress(log, compresslevel=9, mtime=0)


if __name__ == "__main__":
    PACKAGE.mkdir(exist_ok=True)
    (PACKAGE / "healthy.log.gz").write_bytes(packed(healthy_log()))
    (PACKAGE / "out_of_memory.log.gz").write_bytes(packed(failing_log()))
