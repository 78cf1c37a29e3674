"""ttnn tensors and memory configurations, read from the values of a configuration, whichever tool wrote it."""

import json
import re
from collections.abc import Iterator

from torchstone.record.base import Record
from torchstone.record.value import Entries, Fields, Items, Value, entry, value_from_json

# --- One-line texts of ttnn objects, `MemoryConfig(memory_layout=...)`, as values with named parts ---


_OBJECT = re.compile(r"(?P<name>[A-Za-z_][\w.:]*)\((?P<inner>.*)\)", re.DOTALL)
_PART = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_OPENING, _CLOSING = "([{<", ")]}>"


def value_of_text(text: str) -> Value:
    """A text as an object whose parts all have names, or as it stands."""
    found = _OBJECT.fullmatch(text.strip())
    if found is None:
        return text
    parts = [_PART.fullmatch(part) for part in _parts(found["inner"])]
    if not parts or any(part is None for part in parts):
        return text
    fields = tuple((part["name"], value_of_text(part["value"])) for part in parts if part is not None)
    return Fields(class_name=found["name"].replace("::", "."), fields=fields)


def _parts(text: str) -> Iterator[str]:
    """The pieces between the commas that are inside no bracket."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    rest = text[start:].strip()
    if rest or depth:
        yield rest if depth == 0 else ""  # a bracket that is never closed: no part has a name like this


# ttnn's tensors and memory configurations, read from a configuration's values whichever tool wrote them down.


Point = tuple[int, int]

_TENSORS = ("ttnn.Tensor", "torch.Tensor")
_NOTHING = ("", "None", "nullopt", "std::nullopt")
_NUMBERS = re.compile(r"-?\d+")
_SHARD_TEXT = re.compile(
    r"ShardSpec[{(]grid=(?P<grid>\[.*?\]), shape=(?P<shape>[\[{][^\]}]*[\]}]), orientation=(?P<orientation>[\w:.]+)"
)
_UNCLOSED = re.compile(r'("end":\{"x":-?\d+,\s*"y":-?\d+\})(?!\s*\})')  # an old writer left out one brace per range


class TtnnShard(Record, frozen=True, kw_only=True):
    """How a tensor is cut over cores."""

    shape: tuple[int, ...]
    grid: tuple[tuple[Point, Point], ...]  # core ranges, first and last core as (x, y)
    orientation: str


class TtnnMemory(Record, frozen=True, kw_only=True):
    """Where a tensor lies on the device."""

    buffer: str  # DRAM, L1; "": not said
    layout: str  # INTERLEAVED, HEIGHT_SHARDED, ...
    shard: TtnnShard | None = None
    shard_text: str = ""  # a shard that could not be read


class TtnnTensor(Record, frozen=True, kw_only=True):
    """One ttnn tensor; what the file does not say is None or ""."""

    shape: tuple[int, ...] | None
    dtype: str  # BFLOAT8_B
    layout: str = ""  # TILE, ROW_MAJOR
    storage: str = ""  # DEVICE, HOST
    memory: TtnnMemory | None = None
    placement: str = ""  # how it is spread over a mesh, as the file says it


def ttnn_tensors(value: Value) -> Iterator[TtnnTensor]:
    """The ttnn tensors inside a value, in order."""
    tensor = ttnn_tensor(value)
    if tensor is not None:
        yield tensor
    elif isinstance(value, Items):
        for item in value.items:
            yield from ttnn_tensors(item)


def ttnn_tensor(value: Value) -> TtnnTensor | None:
    """A value as a ttnn tensor; None where it is something else."""
    if isinstance(value, Fields):
        value = Entries(entries=(("type", value.class_name), *value.fields))
    if entry(value, "type") in _TENSORS:
        return _flat_tensor(value)
    nested = entry(value, "Tensor") or value
    return _nested_tensor(nested) if entry(nested, "tensor_spec") is not None else None


def _flat_tensor(value: Value) -> TtnnTensor:
    """The layout of later files."""
    shape, dtype = (entry(value, f"original_{name}") or entry(value, name) for name in ("shape", "dtype"))
    return TtnnTensor(
        shape=sizes_of(shape),
        dtype=last_word(dtype),
        layout=last_word(entry(value, "layout")),
        storage=last_word(entry(value, "storage_type")),
        memory=ttnn_memory(entry(value, "memory_config")),
        placement=_placement(entry(value, "tensor_placement") or entry(value, "mesh_device")),
    )


def _nested_tensor(value: Value) -> TtnnTensor:
    """The layout of early files."""
    inner = entry(value, "tensor_spec", "tensor_layout")
    return TtnnTensor(
        shape=sizes_of(entry(value, "tensor_spec", "logical_shape")),
        dtype=last_word(entry(inner, "dtype")),
        layout=last_word(entry(value, "layout")),
        storage=last_word(entry(value, "storage_type")),
        memory=ttnn_memory(entry(inner, "memory_config")),
    )


def ttnn_memory(value: Value) -> TtnnMemory | None:
    """A value as a memory configuration; None where it is something else."""
    value = entry(value, "MemoryConfig") or value
    if entry(value, "type") == "MemoryConfig" and isinstance(text := entry(value, "value"), str):
        value = value_of_text(text)
    if isinstance(value, Fields) and value.class_name.endswith("MemoryConfig"):
        value = Entries(entries=value.fields)
    layout = entry(value, "memory_layout")
    if not isinstance(layout, str):
        return None
    shard, text = _shard(entry(value, "shard_spec"))
    return TtnnMemory(
        buffer=last_word(entry(value, "buffer_type")), layout=last_word(layout), shard=shard, shard_text=text
    )


def _shard(value: Value) -> tuple[TtnnShard | None, str]:
    """A shard, or the text of one that cannot be read."""
    if value is None or (isinstance(value, str) and value in _NOTHING):
        return None, ""
    if isinstance(value, str):
        return _shard_of_text(value)
    shape, grid = sizes_of(entry(value, "shape")), _ranges(entry(value, "grid"))
    if shape is None or grid is None:
        return None, str(value)
    return TtnnShard(shape=shape, grid=grid, orientation=last_word(entry(value, "orientation"))), ""


def _shard_of_text(text: str) -> tuple[TtnnShard | None, str]:
    found = _SHARD_TEXT.search(text)
    if found is None:
        return None, text
    for grid_text in (found["grid"], _UNCLOSED.sub(r"\1}", found["grid"])):
        try:
            grid = _ranges(value_from_json(json.loads(grid_text)))
        except ValueError:
            continue
        shape = sizes_of(found["shape"])
        if shape is not None and grid is not None:
            return TtnnShard(shape=shape, grid=grid, orientation=last_word(found["orientation"])), ""
    return None, text


def _ranges(value: Value) -> tuple[tuple[Point, Point], ...] | None:
    if not isinstance(value, Items):
        return None
    ranges = []
    for item in value.items:
        start, end = _point(entry(item, "start")), _point(entry(item, "end"))
        if start is None or end is None:
            return None
        ranges.append((start, end))
    return tuple(ranges)


def _point(value: Value) -> Point | None:
    x, y = entry(value, "x"), entry(value, "y")
    return (x, y) if isinstance(x, int) and isinstance(y, int) else None


def sizes_of(value: Value) -> tuple[int, ...] | None:
    """Sizes from a list of numbers or a text such as `Shape([1, 32])` or `{32, 32}`; None where there are none."""
    if isinstance(value, Items) and all(type(size) is int for size in value.items):
        return tuple(size for size in value.items if isinstance(size, int))
    if isinstance(value, str) and re.fullmatch(r"[\w.]*\(?[\[{][-\d, ]*[\]}]\)?", value):
        return tuple(int(found) for found in _NUMBERS.findall(value.partition("[")[2] or value))
    return sizes_of(entry(value, "value")) if entry(value, "type") == "Shape" else None


def last_word(value: Value) -> str:
    """The name in `DataType.BFLOAT16`, `DataType::BFLOAT16` or `{"type": "DataType", "repr": ...}`; "" for no text."""
    if isinstance(value, Entries):
        value = entry(value, "repr") or entry(value, "value")
    return value.replace("::", ".").rpartition(".")[2] if isinstance(value, str) else ""


def _placement(value: Value) -> str:
    if value is None:
        return ""
    placement = entry(value, "placement") or entry(value, "placements")
    mesh = entry(value, "mesh_device_shape") or entry(value, "shape")
    parts = (_plain_text(part) for part in (placement, mesh) if part is not None)
    return " on ".join(parts)


def _plain_text(value: Value) -> str:
    if isinstance(value, Items):
        return "[" + ", ".join(map(_plain_text, value.items)) + "]"
    return value.replace("'", "") if isinstance(value, str) else str(value)
