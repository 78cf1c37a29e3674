"""A configuration of a ttnn op -> a recipe in plain JSON, from which the call is made again where ttnn is installed.

Every tool that traces ttnn writes values in its own way; here they become one of these forms:

    null, true, 3, 0.5, "text"          as they are
    {"tensor": {...}}                   shape, dtype, layout, storage, memory, mesh
    {"memory": {...}}                   buffer, layout, shard
    {"enum": ["DataType", "BFLOAT16"]}
    {"object": ["SDPAProgramConfig", {"q_chunk_size": 64}]}
    {"shape": [1, 32]}  {"tile": [32, 32]}  {"coordinates": [[0, 1]]}  {"list": [...]}
    {"device": true}  {"semaphore": true}   made anew
    {"torch": true}                     a tensor of PyTorch: the call copies it, and there is no data
    {"lost": "why"}                     the file does not say what it was
"""

import re
from typing import Any

from torchstone.record.config import Configuration
from torchstone.record.ttnn import TtnnMemory, TtnnTensor, last_word, sizes_of, ttnn_memory, ttnn_tensor, value_of_text
from torchstone.record.value import Argument, Atom, Entries, Fields, Items, Opaque, Value, entry, json_from_value

_NOTHING = ("nullopt", "std::nullopt", "None", "")
_POSITION = re.compile(r"arg(?P<number>\d+)")
_ENUM = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:::|\.)(?P<member>[A-Za-z_]\w*)")
_POINT = re.compile(r"\(?x=(?P<x>\d+),\s*y=(?P<y>\d+)\)?")
_GRID = re.compile(r"(?P<x>\d+)-(?P<y>\d+)")
_COORDINATE = re.compile(r"MeshCoordinate\(\[(?P<sizes>[\d, ]+)\]\)")
_INTEGER = re.compile(r"-?\d+")
_FLOAT = re.compile(r"-?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")
_COMPUTE = {"math_fidelity", "math_approx_mode"}  # a compute kernel configuration is written without its type
_WRITTEN_OUT = ("unsupported type", "{...}")
_HANDLES = {"MeshDevice": "device", "Device": "device", "global_semaphore": "semaphore", "GlobalSemaphore": "semaphore"}
_TILE_SIDE = 32
_PAIR = 2


def is_ttnn(op: str) -> bool:
    """Whether an op is one of ttnn's."""
    return op.startswith(("ttnn.", "ttnn::"))


def recipe_of(configuration: Configuration) -> dict[str, Any]:
    """The op, its arguments by position and by name, and whether the positions are those of C++."""
    positional: list[object] = []
    named: dict[str, object] = {}
    for argument in configuration.arguments:
        found = _POSITION.fullmatch(argument.name)
        if found is None:
            named[argument.name] = _node(argument.value)
        else:
            place = int(found["number"])
            positional += [{"gap": True}] * (place + 1 - len(positional))
            positional[place] = _node(argument.value)
    machine = json_from_value(configuration.machine) if configuration.machine is not None else {}
    return {
        "op": configuration.op.replace("::", "."),
        "positional": positional,
        "named": named,
        "cpp": not named and _is_from_cpp(configuration.arguments),
        "machine": machine,
    }


def lost_arguments(recipe: dict[str, Any]) -> list[str]:
    """The arguments of a recipe that the file does not hold: a verdict without them is an approximation."""
    numbered = [(f"arg{place}", node) for place, node in enumerate(recipe["positional"])]
    return [name for name, node in (*numbered, *recipe["named"].items()) if _has_loss(node)]


def _has_loss(node: object) -> bool:
    if isinstance(node, dict):
        return "lost" in node or any(_has_loss(part) for part in node.values())
    return isinstance(node, list) and any(_has_loss(part) for part in node)


def _is_from_cpp(arguments: tuple[Argument, ...]) -> bool:
    """Early tracers wrote the arguments of the C++ function, whose order is not that of the Python function."""
    values = [one.value for one in arguments]
    return any(value in ("nullopt", "std::nullopt") for value in values if isinstance(value, str)) or any(
        entry(value, "Tensor") is not None or entry(value, "tensor_spec") is not None for value in values
    )


# --- Values ---


def _node(value: Value) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case str(text):
            return _text_node(text)
        case Atom(kind="float", text=text):
            return {"number": text}
        case Atom(kind="int", text=text):
            return int(text)
        case Items(items=items):
            return {"list": [_node(item) for item in items]}
        case Entries() | Fields():
            return _object_node(value)
        case Opaque(text=text):
            return _opaque_node(text)
        case _:
            return {"lost": f"a value of kind {type(value).__name__}"}


def _opaque_node(text: str) -> object:
    """An argument that its tracer could not write; handles of the device are made anew, whatever they were."""
    handle = next((made for name, made in _HANDLES.items() if f'"{name}"' in text), None)
    return {handle: True} if handle else {"lost": _shortened(text)}


def _text_node(text: str) -> object:
    """Numbers, enums, lists and objects that a tracer wrote as text; any other text stays one."""
    text = text.strip()
    if text in _NOTHING:
        return None
    if any(words in text for words in _WRITTEN_OUT):
        return {"device": True} if "MeshDevice" in text else {"lost": _shortened(text)}
    if text in ("inf", "-inf", "nan"):
        return {"number": text}
    if text in ("True", "False", "true", "false"):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return _structured_text(text)


def _structured_text(text: str) -> object:
    if found := _ENUM.fullmatch(text):
        return {"enum": [found["name"], found["member"]]}
    if found := _POINT.fullmatch(text) or _GRID.fullmatch(text):
        return {"object": ["CoreCoord", {"x": int(found["x"]), "y": int(found["y"])}]}
    sizes = sizes_of(text)
    if sizes is not None:
        return {"shape": list(sizes)} if text.startswith(("Shape", "ttnn.Shape")) else {"list": list(sizes)}
    if text.startswith("[[") and text.endswith("]]"):
        rows = re.findall(r"\[([-\d, ]*)\]", text[1:-1])
        return {"list": [{"list": [int(one) for one in _INTEGER.findall(row)]} for row in rows]}
    value = value_of_text(text)
    return _object_node(value) if isinstance(value, Fields) else text


def _object_node(value: Entries | Fields) -> object:
    if entry(value, "type") == "torch.Tensor":
        return {"torch": True}
    tensor = ttnn_tensor(value)
    if tensor is not None:
        return {"tensor": _tensor(tensor, value)}
    memory = ttnn_memory(_unwrapped(value))
    if memory is not None:
        return {"memory": _memory(memory)}
    name, fields = _class_and_fields(value)
    text = fields.get("value", fields.get("repr"))
    if name in _HANDLES:
        return {_HANDLES[name]: True}
    if name in ("Shape", "Tile", "set") or (isinstance(text, str) and len(fields) == 1):
        return _written_object(name, text, fields)
    return {"object": [name, {key: _node(part) for key, part in fields.items()}]}


def _unwrapped(value: Entries | Fields) -> Value:
    """A value that a vector file keeps beside the name of its class."""
    inner = entry(value, "data")
    return inner if isinstance(inner, Entries) else value


def _class_and_fields(value: Entries | Fields) -> tuple[str, dict[str, Value]]:
    if isinstance(value, Fields):
        return value.class_name.rpartition(".")[2], dict(value.fields)
    fields = {str(key): part for key, part in value.entries}
    if isinstance(fields.get("type"), str):
        name = str(fields.pop("type")).rpartition(".")[2]
        inner = fields.get("data")
        return name, {str(key): part for key, part in inner.entries} if isinstance(inner, Entries) else fields
    if len(fields) == 1:
        ((name, inner),) = fields.items()
        if isinstance(inner, Entries):
            return name, {str(key): part for key, part in inner.entries}
        if name[:1].isupper():
            return name, {"value": inner}
    return ("ComputeKernelConfig" if fields.keys() >= _COMPUTE else ""), fields


def _written_object(name: str, text: Value, fields: dict[str, Value]) -> object:
    if name == "Shape":
        sizes = sizes_of(text if text is not None else fields.get("value"))
        return {"lost": "a shape that cannot be read"} if sizes is None else {"shape": list(sizes)}
    if name == "Tile":
        sides = [int(one) for one in _INTEGER.findall(str(text))][:_PAIR]
        return {"tile": sides or [_TILE_SIDE, _TILE_SIDE]}
    if name == "set":
        found = [[int(one) for one in _INTEGER.findall(one)] for one in _COORDINATE.findall(str(text))]
        return {"coordinates": found} if found else {"lost": _shortened(str(text))}
    if not isinstance(text, str):
        return {"object": [name, {key: _node(part) for key, part in fields.items()}]}
    if " object at 0x" in text or "{...}" in text:
        return {"lost": _shortened(text)}
    return _text_node(text)


def _tensor(tensor: TtnnTensor, value: Entries | Fields) -> dict[str, Any]:
    return {
        "shape": None if tensor.shape is None else list(tensor.shape),
        "dtype": tensor.dtype,
        "layout": tensor.layout or _layout_by_alignment(value),
        "storage": tensor.storage or "DEVICE",
        "memory": None if tensor.memory is None else _memory(tensor.memory),
    }


def _layout_by_alignment(value: Value) -> str:
    """Early files leave out the layout of tensors in lists; rows of tiles are aligned to the sides of a tile."""
    nested = entry(value, "Tensor") or value
    sides = sizes_of(entry(nested, "tensor_spec", "tensor_layout", "alignment"))
    if sides is None:
        return ""
    return "TILE" if len(sides) >= _PAIR and sides[-1] % _TILE_SIDE == 0 else "ROW_MAJOR"


def _memory(memory: TtnnMemory) -> dict[str, object]:
    shard = memory.shard
    found: dict[str, object] = {"buffer": memory.buffer, "layout": memory.layout, "shard": None}
    if shard is not None:
        grid = [[list(first), list(last)] for first, last in shard.grid]
        found["shard"] = {"shape": list(shard.shape), "grid": grid, "orientation": last_word(shard.orientation)}
    elif memory.shard_text:
        found["shard"] = {"lost": f"a shard that cannot be read: {_shortened(memory.shard_text)}"}
    return found


def _shortened(text: str, most: int = 120) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
