"""How a log is written down: dialect, colours, prefixes, levels."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from tests.memory.log_generator.graphs import Argument, Graph, Op
from tests.memory.log_generator.tensors import Tensor

_LEVEL_COLOURS = {"DEBUG": "\x1b[38;5;240m", "INFO": "\x1b[38;5;69m"}


@dataclass(frozen=True)
class Style:
    """One way to write the same run."""

    level: str = "operation"  # none of the other ways: program, any
    info_only: bool = False
    new_dialect: bool = False  # of 2026-08: no properties, core ranges
    dumps: bool = True
    stages: tuple[str, ...] = ("ttir", "ttnn")  # of the dumps, in the order of compilation
    typed_dumps: bool = True  # the ops of a dump have their types, with aliases for layouts
    compiles_late: bool = False  # a graph is dumped right before its first pass, not at the beginning
    cache_keys: bool = True  # const-evals are cached by hash, since 2025-12
    prints: bool = False  # the user's script prints into the blocks
    ansi: bool = False
    crlf: bool = False
    stamped: bool = False  # by a CI service
    ranks: int = 0  # processes of a multi-host run


def op_text(graph: Graph, op: Op, style: Style) -> str:
    """The text behind `Executing operation:`."""
    new = style.new_dialect
    operands = ", ".join(op.operands)
    inner = f"@{op.callee}, [{operands}]" if op.callee else operands
    name = op.name if op.callee else f'"{op.name}"'
    if op.name == "func.call":
        name, inner = f"func.call @{op.callee}", operands
    ins = ", ".join(_type(graph, value, new_dialect=new) for value in op.operands)
    outs = [tensor.text(new_dialect=new) for _, tensor in op.results] or (["!ttnn.device"] if op.device else [])
    out = outs[0] if len(outs) == 1 else f"({', '.join(outs)})"
    properties = f" {_properties(op, new_dialect=new)}" if _properties(op, new_dialect=new) else ""
    return f"{_results(op)}{name}({inner}){properties} : ({ins}) -> {out} loc({op.location})"


def _results(op: Op) -> str:
    if op.device:
        return f"{op.device} = "
    if not op.results:
        return ""
    if op.variadic:
        return f"{op.results[0][0].partition('#')[0]}:{len(op.results)} = "
    return f"{', '.join(name for name, _ in op.results)} = "


def _properties(op: Op, *, new_dialect: bool) -> str:
    if op.name == "ttnn.get_device":
        return "<{mesh_offset = #ttnn<mesh_offset 0x0>, mesh_shape = #ttnn<mesh_shape 1x1>}>"
    if new_dialect and op.name != "ttnn.deallocate":
        return '{ttcore.weight_dtype = "bfp_bf4"}' if op.name == "ttnn.matmul" else ""
    if op.name == "ttnn.to_memory_config":
        return "<{memory_config = #ttnn.memory_config<<l1>, <block_sharded>, #ttnn.shard_spec<<[#ttnn.core_range<(0,0), (7,7)>]>, <128x512>, <row_major>>>}>"  # noqa: E501 - as printed
    if op.name == "ttnn.add":
        return "<{dtype = #ttcore.supportedDataTypes<bf16>, value = dense<1> : tensor<64xsi32>}>"
    return op.properties


def _type(graph: Graph, value: str, *, new_dialect: bool) -> str:
    tensor = graph.tensor(value)
    return "!ttnn.device" if tensor is None else tensor.text(new_dialect=new_dialect)


_DUMP = "2026-03-16 10:11:03.197 (   3.197s) [        7F2C9740]      module_builder.cc:1190     1| MLIR Module"
_DUMP_END = "------------------ END OF MLIR MODULE ------------------"


def module_dump(graph: Graph, style: Style) -> list[str]:
    """The dumps of a graph, stage after stage; only those from `ttnn` on have layouts."""
    lines = []
    for stage in style.stages:
        with_layouts = stage.startswith("ttnn")
        lines += [f"{_DUMP} {stage}:", *(_device_module(graph, style) if with_layouts else _plain_module(graph))]
        lines.append(_DUMP_END)
    return lines


def _plain_module(graph: Graph) -> list[str]:
    """A stage before layouts: logical shapes only, and ops of another dialect."""

    def spelled(tensor: Tensor) -> str:
        dims = "".join(f"{size}x" for size in tensor.shape)
        return f"tensor<{dims}{tensor.dtype}>"

    signature = ", ".join(_argument(number, argument, spelled) for number, argument in enumerate(graph.arguments))
    return [
        f"module @{graph.module} attributes {{mhlo.is_dynamic = false}} {{",
        f"  func.func @{graph.name}({signature}) -> tensor<1xf32> {{",
        "    %0 = stablehlo.add %arg0, %arg0 : tensor<1xf32> loc(#loc)",
        "    return %0 : tensor<1xf32> loc(#loc)",
        "  } loc(#loc)",
        "} loc(#loc)",
    ]


def _device_module(graph: Graph, style: Style) -> list[str]:
    layouts: dict[str, str] = {}

    def spelled(tensor: Tensor) -> str:
        full = tensor.layout(new_dialect=style.new_dialect, short_buffer=True)
        return tensor.text(layout=layouts.setdefault(full, f"#ttnn_layout{len(layouts) or ''}"))

    signature = ", ".join(_argument(number, argument, spelled) for number, argument in enumerate(graph.arguments))
    body = [f"        {_head(op)} : {_signature(graph, op, spelled, style)} loc(#loc)" for op in graph.scheduled]
    return [
        "#dram = #ttnn.buffer_type<dram>",
        "#l1 = #ttnn.buffer_type<l1>",
        "#system_memory = #ttnn.buffer_type<system_memory>",
        *(f"{alias} = {layout}" for layout, alias in layouts.items()),
        f"module @{graph.module} attributes {{mhlo.is_dynamic = false}} {{",
        "      func.func private @main_const_eval_0(%arg0: tensor<1xf32> loc(unknown)) -> tensor<1xf32> "
        'attributes {tt.function_type = "const_eval"} {',
        '        %0 = "ttnn.full"() : () -> tensor<1xf32> loc(#loc)',
        "      } loc(#loc)",
        f"      func.func @{graph.name}({signature}) -> tensor<1xf32> "
        'attributes {tt.function_type = "forward_device"} {',
        *body,
        "        return %0 : tensor<1xf32> loc(#loc)",
        "      } loc(#loc)",
        "} loc(#loc)",
        "#loc = loc(unknown)",
    ]


def _signature(graph: Graph, op: Op, spelled: Callable[[Tensor], str], style: Style) -> str:
    if not style.typed_dumps:
        return "(...) -> ()"
    tensors = [graph.tensor(value) for value in op.operands]
    ins = ", ".join("!ttnn.device" if tensor is None else spelled(tensor) for tensor in tensors)
    outs = [spelled(tensor) for _, tensor in op.results] or (["!ttnn.device"] if op.device else [])
    out = outs[0] if len(outs) == 1 else f"({', '.join(outs)})"
    return f"({ins}) -> {out}"


def _argument(number: int, argument: Argument, spelled: Callable[[Tensor], str]) -> str:
    cache = "ttcore.kv_cache, " if argument.kv_cache else ""
    return (
        f"%arg{number}: {spelled(argument.tensor)} {{ttcore.argument_type = #ttcore.argument_type<{argument.kind}>, "
        f'{cache}ttir.name = "{argument.name}"}} loc("p{number}.2")'
    )


def _head(op: Op) -> str:
    operands = ", ".join(op.operands)
    if op.name == "func.call":
        return f"{_results(op)}call @{op.callee}({operands})"
    inner = f"@{op.callee}, [{operands}]" if op.callee else operands
    return f"{_results(op)}{op.name if op.callee else chr(34) + op.name + chr(34)}({inner})"


def written(lines: list[str], style: Style) -> bytes:
    """The bytes of a log in one style."""
    ends = "\r\n" if style.crlf else "\n"
    clock = count(9048735, 137)
    text = []
    for line in lines:
        shown = _coloured(line) if style.ansi else line
        for rank in range(max(style.ranks, 1)):
            prefix = f"[1,{rank}]<stdout>: " if style.ranks else ""
            body = shown if rank == 0 else shown.replace("AllocatedPerBank: 0.", "AllocatedPerBank: 7.")
            stamp = f"2025-10-14T04:33:23.{next(clock):07d}Z " if style.stamped else ""
            text.append(f"{stamp}{prefix}{body}{ends}")
    return "".join(text).encode()


def _coloured(line: str) -> str:
    category, found, rest = line.partition(" | ")
    level, more, message = rest.partition(" | ")
    if not (found and more and level.strip() in _LEVEL_COLOURS):
        return line
    return f"\x1b[32m{category}\x1b[0m | \x1b[1m{_LEVEL_COLOURS[level.strip()]}{level}\x1b[0m | {message}"
