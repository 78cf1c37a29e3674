"""MLIR text as the runtime prints it -> op calls, tensor types with their sizes, and the arguments of a module."""

import re
from collections.abc import Mapping, Sequence
from math import prod
from zlib import crc32

from torchstone.record.memory import ArgumentKind, Buffer, CompiledModule, GraphArgument, OpCall, TensorType

# --- Brackets ---


_BRACKET_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|->|[][(){}<>,]')
_OPENING = frozenset("([{<")
_CLOSING = frozenset(")]}>")


def split_list(text: str) -> list[str] | None:
    """The items of a comma-separated list, None where brackets do not balance. The `>` of an arrow is not a bracket."""
    items, start, depth = [], 0, 0
    for match in _BRACKET_OR_COMMA.finditer(text):
        mark = match.group()
        if mark in _OPENING:
            depth += 1
        elif mark in _CLOSING:
            depth -= 1
            if depth < 0:
                return None
        elif mark == "," and depth == 0:
            items.append(text[start : match.start()].strip())
            start = match.end()
    if depth:
        return None
    last = text[start:].strip()
    return [*items, last] if last else items


def closing_bracket(text: str, opening: int) -> int:
    """Where the bracket at `opening` closes; -1 if it never does."""
    depth = 0
    for match in _BRACKET_OR_COMMA.finditer(text, opening):
        mark = match.group()
        if mark in _OPENING:
            depth += 1
        elif mark in _CLOSING:
            depth -= 1
            if depth == 0:
                return match.start()
    return -1


# --- Tensor types: shape, element type, memory, bytes ---


HOST = "host"

_TILE_BYTES = {
    "f32": 4096, "si32": 4096, "i32": 4096, "u32": 4096, "ui32": 4096,
    "bf16": 2048, "f16": 2048, "u16": 2048, "ui16": 2048, "si16": 2048, "i16": 2048,
    "u8": 1024, "ui8": 1024, "si8": 1024, "i8": 1024, "i1": 1024,
    "bfp_f8": 1088, "bfp_bf8": 1088, "bfp_f4": 576, "bfp_bf4": 576, "bfp_f2": 320, "bfp_bf2": 320,
}  # fmt: skip
_WIDE_BYTES = {"f64": 8, "i64": 8, "si64": 8, "ui64": 8}  # on the host only
_TILE_ELEMENTS = 32 * 32
_MOST_ELEMENTS = 1 << 59  # more is damage: no column of a timeline holds their bytes
_BUFFER_TYPES = {"dram": "DRAM", "l1": "L1", "l1_small": "L1_SMALL", "trace": "TRACE", "system_memory": HOST}

_TENSOR = re.compile(r"tensor<((?:[\d?]{1,18}x)*)(![\w.]+<(?:[^<>]|<[^<>]*>)*>|[\w.]+)(?:, (.*))?>", re.DOTALL)
_TILE = re.compile(r"!tt(?:core)?\.tile<(\d{1,9})x(\d{1,9}), (\w+)>")
_MEMREF = re.compile(r"memref<((?:\d{1,18}x)*)(!tt(?:core)?\.tile<\d{1,9}x\d{1,9}, \w+>|\w+), #([\w.]+)(?:<(\w+)>)?")
_GRID = re.compile(r"<(\d{1,9}(?:x\d{1,9})*)[,>]")
_SHARDING = re.compile(r"<(interleaved|single_bank|height_sharded|width_sharded|block_sharded|nd_sharded)>")
_ALIAS = re.compile(r"#[A-Za-z_]\w*\b(?![.<])")


def read_type(text: str, aliases: Mapping[str, str] | None = None) -> TensorType:
    """Read a type; a type that is not a tensor, or not understood, keeps its text and has no sizes."""
    match = _TENSOR.fullmatch(text)
    if match is None:
        return TensorType(text=text)
    dims, element, layout = match.groups()
    if aliases and layout:
        layout = expand_aliases(layout, aliases)
    dtype = _element_name(element)
    short = f"{dims}{dtype}"
    if "?" in dims:
        return TensorType(text=short, dtype=dtype)
    shape = tuple(int(size) for size in dims.split("x")[:-1])
    if prod(shape) > _MOST_ELEMENTS:
        return TensorType(text=short, dtype=dtype)
    buffer = _read_buffer(layout) if layout else None
    stored = buffer.dtype if buffer else dtype
    return TensorType(
        text=short, shape=shape, dtype=dtype, logical_bytes=elements_bytes(prod(shape), stored), buffer=buffer
    )


def expand_aliases(text: str, aliases: Mapping[str, str]) -> str:
    """Replace #aliases by their definitions."""
    for _ in range(4):  # a layout names a buffer type: two levels in practice
        expanded = _ALIAS.sub(lambda match: aliases.get(match.group(), match.group()), text)
        if expanded == text:
            break
        text = expanded
    return text


def elements_bytes(elements: int, dtype: str) -> int | None:
    """Bytes that elements take without padding; None for an unknown element type."""
    if dtype in _WIDE_BYTES:
        return elements * _WIDE_BYTES[dtype]
    tile_bytes = _TILE_BYTES.get(dtype)
    return None if tile_bytes is None else -(-elements * tile_bytes // _TILE_ELEMENTS)


def explain_padding(tensor: TensorType) -> str:
    """Why the tensor takes more than its elements: 'last dim 2 padded to 32: 16x'; "" when it does not."""
    if tensor.shape is None or tensor.buffer is None or not tensor.buffer.tiled or not tensor.logical_bytes:
        return ""
    rows, columns = (1, 1, *tensor.shape)[-2:]
    parts = [
        f"{name} dim {size} padded to {-(-size // 32) * 32}: {_times(-(-size // 32) * 32 / size)}"
        for name, size in (("last", columns), ("second-last", rows))
        if size and size % 32
    ]
    factor = tensor.buffer.padded_bytes / tensor.logical_bytes
    if not parts:
        return f"shards padded to whole tiles: {_times(factor)}" if factor > 1 else ""
    return " and ".join(parts) + (f", {_times(factor)} in all" if len(parts) > 1 else "")


def _times(factor: float) -> str:
    return f"{factor:.0f}x" if factor >= 10 or factor == int(factor) else f"{factor:.3g}x"  # noqa: PLR2004 - two digits


def _element_name(element: str) -> str:
    tile = _TILE.fullmatch(element)
    return tile.group(3) if tile else element


def _read_buffer(layout: str) -> Buffer | None:
    memref = _MEMREF.search(layout)
    if memref is None:
        return None
    dims, element, named, inside = memref.groups()
    sizes = [int(size) for size in dims.split("x")[:-1]]
    tile = _TILE.fullmatch(element)
    dtype = _element_name(element)
    page_bytes = _page_bytes(sizes, dtype, tile)
    if page_bytes is None:
        return None
    sharding = _SHARDING.search(layout)
    found = sharding.group(1) if sharding else ""
    pages = prod(sizes) if tile else prod(sizes[:-1])
    shards = _cores(layout[: memref.start()]) if found.endswith("sharded") else 1
    if pages * page_bytes * shards > _MOST_ELEMENTS:
        return None
    return Buffer(
        memory=_BUFFER_TYPES.get(inside or named, inside or named),
        dtype=dtype,
        tiled=tile is not None,
        sharding=found,
        padded_bytes=pages * page_bytes * shards,
        page_bytes=page_bytes,
        pages=pages,
    )


def _page_bytes(sizes: list[int], dtype: str, tile: re.Match[str] | None) -> int | None:
    if tile is None:
        return elements_bytes(sizes[-1] if sizes else 1, dtype)
    return elements_bytes(int(tile.group(1)) * int(tile.group(2)), dtype)


def _cores(before_memref: str) -> int:
    grids = _GRID.findall(before_memref)
    return prod(int(size) for size in grids[0].split("x")) if grids else 1


# --- Op calls: the text after `Executing operation:` ---


_HEAD = re.compile(
    r'(?:(%[^="]*?) = )?"?([A-Za-z_][\w.$-]*)"?(?: @([\w.$-]+))?\((?:@([\w.$-]+)(?:, )?)?([^()]*)\)(.*)', re.DOTALL
)
_PLAIN_HEAD = re.compile(r'(?:(%[^="]*?) = )?"?([A-Za-z_][\w$-]*\.[\w.$-]+)"?(.*)', re.DOTALL)
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_RESULT = re.compile(r"(%[\w$.-]+)(?::(\d+))?")
_MOST_DIGITS = 4  # of the number of results of one op
_ARROW = re.compile(r"\)\s*->\s*")


class OpReader:
    """Reads op texts; each distinct type and signature is read once."""

    def __init__(self) -> None:
        self.types: list[TensorType] = []
        self._type_ids: dict[str, int] = {}
        self._signatures: dict[str, tuple[tuple[int, ...], tuple[int, ...]] | None] = {}
        self._balanced: dict[str, bool] = {"": True}  # properties, whether their brackets close

    def type_id(self, text: str) -> int:
        """The row of a type."""
        known = self._type_ids.get(text)
        return self.add_type(text, read_type(text)) if known is None else known

    def add_type(self, key: str, tensor: TensorType) -> int:
        """Remember a type under the text it was read from."""
        self._type_ids[key] = len(self.types)
        self.types.append(tensor)
        return len(self.types) - 1

    def read(self, text: str) -> OpCall | None:
        """An op's text as a call; None when a part of it is missing or does not balance."""
        body, found, location = text.rpartition(" loc(")
        if not found or not location.endswith(")"):
            return None
        head, found, signature = body.rpartition(" : (")
        types = self._signature(signature) if found else ((), ())
        match = _HEAD.fullmatch(head if found else body)
        if types is None or match is None:
            return None
        results, name, called, cached, operands, details = match.groups()
        if not self._is_balanced(details):
            return None
        return OpCall(
            name=name,
            results=result_names(results or ""),
            operands=tuple(_VALUE.findall(operands)),
            operand_types=types[0],
            result_types=types[1],
            callee=called or cached or "",
            details=details.strip(),
            location=location[:-1],
        )

    def _is_balanced(self, details: str) -> bool:
        known = self._balanced.get(details)
        if known is None:
            known = self._balanced[details] = split_list(details) is not None
        return known

    def _signature(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """`types) -> types` as rows."""
        if text not in self._signatures:
            self._signatures[text] = self._read_signature(text)
        return self._signatures[text]

    def _read_signature(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        for arrow in _ARROW.finditer(text):  # maps inside layouts have arrows too: the right one balances both sides
            operands = split_list(text[: arrow.start()])
            if operands is None:
                continue
            outcome = text[arrow.end() :]
            results = split_list(outcome[1:-1] if outcome.startswith("(") and outcome.endswith(")") else outcome)
            if results is not None:
                return tuple(map(self.type_id, operands)), tuple(map(self.type_id, results))
        return None


_WHOLE_OPERANDS = re.compile(r"\((?:%[\w#]+(?:, (?=%))?)+\)")


def guess_call(text: str) -> OpCall:
    """What is left of an op whose text is damaged: its name and operands, if that."""
    match = _PLAIN_HEAD.match(text)
    if match is None:
        return OpCall(name="", details=text[:200])
    operands = _WHOLE_OPERANDS.match(match.group(3))
    return OpCall(
        name=match.group(2),
        results=result_names(match.group(1) or ""),
        operands=tuple(_VALUE.findall(operands.group())) if operands else (),
        details=match.group(3)[:200].strip(),
    )


def result_names(text: str) -> tuple[str, ...]:
    """The values an op defines: `%0:2` defines %0#0 and %0#1, `%query, %key` two values by name."""
    if text[:1] == "%" and text[1:].isalnum():
        return (text,)  # nearly all ops have one result
    names: list[str] = []
    for name, count in _RESULT.findall(text):
        several = int(count) if 0 < len(count) <= _MOST_DIGITS else 0  # more is damage: an op has a handful of results
        names += [f"{name}#{index}" for index in range(several)] if several else [name]
    return tuple(names)


def head_of(call: OpCall) -> str:
    """A call without its types and properties: identical in a module dump and at run time."""
    return _head(call.results, call.name, call.callee, call.operands)


def _head(results: Sequence[str], name: str, callee: str, operands: Sequence[str]) -> str:
    return f"{','.join(results)}={name.removeprefix('func.')}({callee};{','.join(operands)})"


MARK_BYTES = 4
_SHAPE = re.compile(r"tensor<((?:\d+x)*)[^x\d]")


def op_marks(head: str, shapes: Sequence[str]) -> tuple[bytes, bytes]:
    """Short digests of an op: of its head, and of its head with the shapes of its operands and results ("8x32x")."""
    mine = crc32(head.encode())
    return mine.to_bytes(MARK_BYTES), crc32(",".join(shapes).encode(), mine).to_bytes(MARK_BYTES)


def read_marks(line: str) -> tuple[bytes, bytes] | None:
    """The digests of an op line of a module dump; None for a line that is not an op to run."""
    match = _HEAD.fullmatch(line)
    if match is None or match.group(2) in {"return", "func.func"}:
        return None
    results, name, called, cached, operands, _ = match.groups()
    head = _head(result_names(results or ""), name, called or cached or "", _VALUE.findall(operands))
    return op_marks(head, _SHAPE.findall(line, max(line.rfind(" : ("), 0)))


# --- Module dumps: the arguments of a graph, under their layer names ---


READABLE_STAGES = ("shlo_frontend", "ttnn", "ttnn_runtime")  # in the order of compilation; the last two have layouts

_MODULE = re.compile(r"(?:builtin\.)?module @([\w.$-]+)")
_FUNCTION = re.compile(r"func\.func (private |public )?@([\w.$-]+)(?=\()")
_FUNCTION_TYPE = re.compile(r'tt\.function_type = "(\w+)"')
_ARGUMENT = re.compile(r"(%[\w$]+): (.*)", re.DOTALL)
_KIND = re.compile(r"argument_type<(\w+)>")
_NAME = re.compile(r'ttir\.name = "((?:[^"\\]|\\.)*)"')
_LOCAL_SHAPE = re.compile(r"local_shape = (tensor<[^<>]*>)")
_ALIGNMENT = re.compile(r"noc_dram_address_align_bytes = (\d{1,9})")


class ModuleDumpReader:
    """Reads one dump after another, line by line; stores only the arguments and a digest of the ops."""

    def __init__(self, ops: OpReader) -> None:
        self.modules: list[CompiledModule] = []
        self.row_alignment_bytes: int | None = None
        self._ops = ops
        self._stage = ""
        self._known: set[CompiledModule] = set()
        self._last: CompiledModule | None = None  # the dump before, if it is the last of `modules`
        self._reset()

    def _reset(self) -> None:
        self._aliases: dict[str, str] = {}
        self._name = ""
        self._found: CompiledModule | None = None
        self._inside = False
        self._heads, self._shapes = bytearray(), bytearray()

    @property
    def is_open(self) -> bool:
        """Whether the lines that follow are those of a dump."""
        return bool(self._stage)

    def begin(self, stage: str) -> None:
        """The header of a dump was read."""
        self.end()
        self._stage = stage

    def feed(self, line: bytes) -> None:
        """Take one line of the dump."""
        if self._stage not in READABLE_STAGES:
            return
        text = line.decode(errors="replace").strip()
        if text.startswith("#"):
            self._learn_alias(text)
        elif self._inside:
            self._read_body(text)
        elif "module @" in text:
            match = _MODULE.match(text)
            self._name = match.group(1) if match else self._name
        elif text.startswith("func.func"):
            self._read_function(text)

    def end(self) -> None:
        """The dump is over, by its last line or by that of another."""
        if self._found is not None:
            arguments, function = self._found.arguments, self._found.function
            self._add(
                CompiledModule(
                    name=self._name,
                    stage=self._stage,
                    function=function,
                    arguments=arguments,
                    heads=bytes(self._heads),
                    shapes=bytes(self._shapes),
                )
            )
        self._stage = ""
        self._reset()

    def _add(self, module: CompiledModule) -> None:
        """Keep one dump per compilation, of its last stage: only the stages from `ttnn` on have layouts."""
        last, self._last = self._last, None
        if module in self._known:  # a graph that is compiled again is dumped again
            return
        self._known.add(module)
        order = READABLE_STAGES.index
        if last is not None and last.name == module.name and order(last.stage) < order(module.stage):
            self.modules.pop()
        self.modules.append(module)
        self._last = module

    def _learn_alias(self, text: str) -> None:
        name, found, meaning = text.partition(" = ")
        if found and not name.startswith("#loc"):
            self._aliases[name] = meaning
            alignment = _ALIGNMENT.search(meaning) if name == "#system_desc" else None
            self.row_alignment_bytes = int(alignment.group(1)) if alignment else self.row_alignment_bytes

    def _read_function(self, text: str) -> None:
        match = _FUNCTION.match(text)
        if match is None or self._found is not None:
            return
        visibility, name = match.groups()
        end = closing_bracket(text, match.end())
        rest = text[end:] if end >= 0 else ""
        kind = _FUNCTION_TYPE.search(rest)
        is_forward = (
            kind.group(1) == "forward_device" if kind else visibility != "private " and "const_eval" not in rest
        )
        if not is_forward or end < 0:
            return
        parts = split_list(text[match.end() + 1 : end]) or []
        arguments = tuple(found for found in map(self._read_argument, parts) if found is not None)
        self._found = CompiledModule(name="", stage=self._stage, function=name, arguments=arguments)
        self._inside = True

    def _read_argument(self, text: str) -> GraphArgument | None:
        match = _ARGUMENT.match(text)
        if match is None:
            return None
        value, rest = match.groups()
        opening = rest.find("<")
        end = closing_bracket(rest, opening) + 1 if opening >= 0 else 0
        spelled, attributes = (rest[:end], rest[end:]) if end else (rest.split(" ")[0], rest)
        full = expand_aliases(spelled, self._aliases)
        kind, name, local = _KIND.search(attributes), _NAME.search(attributes), _LOCAL_SHAPE.search(attributes)
        tensor = read_type(full)
        shape = read_type(local.group(1)).shape if local else None
        on_chip = tensor.shape if shape is None else shape
        stored = tensor.buffer.dtype if tensor.buffer else tensor.dtype
        return GraphArgument(
            value=value,
            name=name.group(1) if name else "",
            kind=_kind(kind.group(1) if kind else ""),
            type=self._ops.type_id(full),
            local_shape=shape,
            size_bytes=None if on_chip is None else elements_bytes(prod(on_chip), stored),
            is_kv_cache="ttcore.kv_cache" in attributes,
        )

    def _read_body(self, text: str) -> None:
        if text.startswith(("return", "func.return", "}")):
            self._inside = False
            return
        marks = read_marks(text)
        if marks is not None:
            self._heads += marks[0]
            self._shapes += marks[1]


def _kind(text: str) -> ArgumentKind:
    """The kind of an argument; `default` and no kind mean that it was not marked as a weight."""
    return ArgumentKind(text) if text in {"parameter", "constant"} else ArgumentKind.INPUT
