"""The lines of a module dump -> CompiledModule: the arguments of the graph, under their layer names."""

import re
from hashlib import blake2b
from math import prod

from torchstone.memory.mlir.brackets import closing_bracket, split_list
from torchstone.memory.mlir.op_text import OpReader, read_head
from torchstone.memory.mlir.tensor_type import elements_bytes, expand_aliases, read_type
from torchstone.record.memory import ArgumentKind, CompiledModule, GraphArgument

READABLE_STAGES = ("ttnn", "shlo_frontend")

_MODULE = re.compile(r"(?:builtin\.)?module @([\w.$-]+)")
_FUNCTION = re.compile(r"func\.func (private |public )?@([\w.$-]+)(?=\()")
_FUNCTION_TYPE = re.compile(r'tt\.function_type = "(\w+)"')
_ARGUMENT = re.compile(r"(%[\w$]+): (.*)", re.DOTALL)
_KIND = re.compile(r"argument_type<(\w+)>")
_NAME = re.compile(r'ttir\.name = "((?:[^"\\]|\\.)*)"')
_LOCAL_SHAPE = re.compile(r"local_shape = (tensor<[^<>]*>)")
_ALIGNMENT = re.compile(r"noc_dram_address_align_bytes = (\d+)")


class ModuleDumpReader:
    """Reads one dump after another, line by line; nothing but the arguments and a digest of the ops is kept."""

    def __init__(self, ops: OpReader) -> None:
        self.modules: list[CompiledModule] = []
        self.row_alignment_bytes: int | None = None
        self._ops = ops
        self._stage = ""
        self._known: set[CompiledModule] = set()
        self._reset()

    def _reset(self) -> None:
        self._aliases: dict[str, str] = {}
        self._name = ""
        self._found: CompiledModule | None = None
        self._inside = False
        self._digest = blake2b(digest_size=16)

    @property
    def is_open(self) -> bool:
        """Whether the lines that follow are those of a dump."""
        return bool(self._stage)

    def begin(self, stage: str) -> None:
        """The header of a dump was read."""
        self.end()
        self._stage = stage

    def feed(self, line: str) -> None:
        """Take one line of the dump."""
        if self._stage not in READABLE_STAGES:
            return
        text = line.strip()
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
            module = CompiledModule(
                name=self._name,
                stage=self._stage,
                function=function,
                arguments=arguments,
                heads=self._digest.digest(),
            )
            if module not in self._known:  # a graph that is compiled again is dumped again
                self._known.add(module)
                self.modules.append(module)
        self._stage = ""
        self._reset()

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
        head = read_head(text)
        if head is not None:
            self._digest.update(head.encode())


def _kind(text: str) -> ArgumentKind:
    """The compiler's word; `default` and no word mean that nobody marked it as a weight."""
    return ArgumentKind(text) if text in {"parameter", "constant"} else ArgumentKind.INPUT
