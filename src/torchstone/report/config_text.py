"""Values of a configuration in one line, as people who write kernels read them."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul

from torchstone.record.json_value import entry
from torchstone.record.tensor import TensorSpec
from torchstone.record.ttnn_tensor import TtnnMemory, TtnnShard, TtnnTensor, sizes_of, ttnn_memory, ttnn_tensor
from torchstone.record.value import Atom, Entries, Fields, Items, Opaque, Value

_PLAIN_LAYOUT = "TILE"  # what almost every ttnn tensor on a device has
_UNKNOWN = "?"


def config_value_text(value: Value) -> str:
    """One value; a tensor of any tool as `Tensor(shape=..., dtype=...)`."""
    foreign = ttnn_tensor(value)
    if foreign is not None:
        return _ttnn_tensor_text(foreign)
    memory = ttnn_memory(value)
    if memory is not None:
        return f"MemoryConfig({_memory_text(memory)})"
    match value:
        case TensorSpec():
            return _tensor_text(value)
        case Items(kind="tuple", items=items):
            return f"({', '.join(map(config_value_text, items))})"
        case Items(items=items):
            return f"[{', '.join(map(config_value_text, items))}]"
        case Entries():
            return _entries_text(value)
        case Fields(class_name=name, fields=fields):
            return f"{name}({_parts(fields)})"
        case Atom(text=text) | Opaque(text=text):
            return text
        case str():
            return value
        case _:
            return repr(value)


def _parts(parts: Iterable[tuple[Value, Value]] | Iterable[tuple[str, Value]]) -> str:
    return ", ".join(f"{name}={config_value_text(part)}" for name, part in parts)


def _entries_text(value: Entries) -> str:
    """An object of a JSON file: by its type where it names one, else by its keys."""
    kind = entry(value, "type")
    for name in ("repr", "value"):
        text = entry(value, name)
        if kind is not None and isinstance(text, str):
            return text
    if kind == "Shape" or (len(value.entries) == 1 and value.entries[0][0] == "Shape"):
        return f"Shape({_sizes(sizes_of(value.entries[0][1]))})"
    if isinstance(kind, str):
        return f"{kind}({_parts(part for part in value.entries if part[0] != 'type')})"
    if len(value.entries) == 1 and isinstance(value.entries[0][1], Entries):
        ((only, inner),) = value.entries
        return f"{only}({_parts(inner.entries) if isinstance(inner, Entries) else ''})"
    return f"{{{_parts(value.entries)}}}"


def _tensor_text(spec: TensorSpec) -> str:
    parts = [f"shape={_sizes(spec.shape)}", f"dtype={spec.dtype}"]
    if spec.stride is not None and spec.stride != _contiguous(spec.shape):
        parts.append(f"stride={_sizes(spec.stride)}")
    if spec.storage_offset:
        parts.append(f"offset={spec.storage_offset}")
    if spec.layout != "strided":
        parts.append(f"layout={spec.layout}")
    if spec.device not in ("", "cpu"):
        parts.append(f"device={spec.device}")
    if spec.requires_grad:
        parts.append("requires_grad=True")
    if spec.subclass:
        parts.append(f"class={spec.subclass}")
    return f"Tensor({', '.join(parts)})"


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(accumulate((max(size, 1) for size in shape[:0:-1]), mul, initial=1))[::-1] if shape else ()


def _ttnn_tensor_text(tensor: TtnnTensor) -> str:
    parts = [f"shape={_sizes(tensor.shape)}", f"dtype={tensor.dtype or _UNKNOWN}"]
    if tensor.layout != _PLAIN_LAYOUT:
        parts.append(f"layout={tensor.layout or _UNKNOWN}")
    if tensor.storage not in ("", "DEVICE"):
        parts.append(f"storage={tensor.storage}")
    if tensor.memory is not None:
        parts.append(_memory_text(tensor.memory))
    if tensor.placement:
        parts.append(f"placement={tensor.placement}")
    return f"Tensor({', '.join(parts)})"


def _memory_text(memory: TtnnMemory) -> str:
    name = "_".join(part for part in (memory.buffer, memory.layout) if part)
    shard = f", {_shard_text(memory.shard)}" if memory.shard is not None else ""
    unread = f", shard({memory.shard_text})" if memory.shard_text else ""
    return f"memory={name}{shard}{unread}"


def _shard_text(shard: TtnnShard) -> str:
    grid = ", ".join(f"({first[0]},{first[1]})->({last[0]},{last[1]})" for first, last in shard.grid)
    return f"shard(shard_shape={_sizes(shard.shape)}, grid=[{grid}], orientation={shard.orientation})"


def _sizes(sizes: Sequence[int] | None) -> str:
    return _UNKNOWN if sizes is None else f"[{', '.join(map(str, sizes))}]"
