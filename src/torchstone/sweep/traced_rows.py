"""Traced configurations -> the rows of parameters that tt-metal's loaders give, under the names that they use.

A row has three parts. `standard` are the names that every sweep module of that time gets. `provenance` is where a call
was seen and what else it was given: for modules that take any keyword. `aliases` are further names of the same values,
and those of the other generation: a module gets one only if its run() declares it. Needs the standard library alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchstone.backends.ttnn_trace_text import is_unreadable
from torchstone.sweep.master_entries import Entry, position_of
from torchstone.sweep.ttnn_objects import (
    dict_to_memory_config,
    is_memory_config,
    last_part,
    parse_dtype,
    parse_enum_value,
    parse_layout,
    parse_special_float,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz"
BINARY = 2
_SEEN = ("traced_source", "traced_machine_info")
_DEVICE = "StorageType::DEVICE"
Values = dict[str, Any]


# --- Tensors, whichever tool wrote them ---


class Tensor:
    """A traced tensor."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        inner = description.get("Tensor", description)
        if "tensor_spec" in inner:  # the layout of 2025
            spec = inner["tensor_spec"]
            layout = spec["tensor_layout"]
            self.shape = list(spec["logical_shape"])
            self.dtype, self.memory_config = layout["dtype"], layout.get("memory_config")
            self.layout = inner.get("layout") or layout.get("layout")
            self.storage_type, self.placement = inner.get("storage_type"), None
        elif description.get("type") in _TTNN_TENSORS:
            self.shape = list(_first(description, "original_shape", "shape") or ())
            self.dtype, self.memory_config = (
                _first(description, "original_dtype", "dtype"),
                description.get("memory_config"),
            )
            self.layout, self.storage_type = description.get("layout"), description.get("storage_type")
            self.placement = description.get("tensor_placement")
        else:  # a tensor of PyTorch
            self.shape = list(description["shape"])
            self.dtype = description["dtype"]
            self.memory_config = {
                "stride": description.get("stride"),
                "storage_offset": description.get("storage_offset", 0),
            }
            self.layout, self.storage_type, self.placement = (
                description.get("layout", "strided"),
                description.get("device", "cpu"),
                None,
            )

    def properties(self) -> Values:
        """Dtype, layout and memory configuration as a sweep module uses them."""
        return {
            "dtype": parse_dtype(self.dtype),
            "layout": parse_layout(self.layout),
            "memory_config": dict_to_memory_config(self.memory_config),
        }


_TTNN_TENSORS = ("ttnn.Tensor", "torch.Tensor")


def _first(description: Mapping[str, object], *names: str) -> Any:
    return next((description[name] for name in names if description.get(name) is not None), None)


def tensor_in(value: object) -> Tensor | None:
    """The tensor that a value describes; None if it is none."""
    if not isinstance(value, Mapping):
        return None
    nested = value.get("Tensor", value)
    is_nested = isinstance(nested, Mapping) and "tensor_spec" in nested
    return Tensor(value) if is_nested or value.get("type") in (*_TTNN_TENSORS, "tensor") else None


def tensors_of(entry: Entry) -> list[Tensor]:
    """The tensors among the arguments, in order; those of a list, as concat takes it, one by one."""
    found = []
    for value in entry.arguments.values():
        for part in value if isinstance(value, list | tuple) else (value,):
            tensor = tensor_in(part)
            if tensor is not None:
                found.append(tensor)
    return found


def output_memory_config(entry: Entry) -> Any:
    """The memory configuration of the result of 2025: the one asked for, or else that of the first input."""
    for value in entry.arguments.values():
        if is_memory_config(value):
            return dict_to_memory_config(value)
    tensors = tensors_of(entry)
    return dict_to_memory_config(tensors[0].memory_config) if tensors else None


# --- Rows ---


@dataclass
class Row:
    """The parameters of one traced call."""

    standard: Values
    provenance: Values = field(default_factory=dict)
    aliases: Values = field(default_factory=dict)

    def get(self, name: str, default: object) -> Any:
        """A value under any of its names."""
        for part in (self.standard, self.provenance, self.aliases):
            if name in part:
                return part[name]
        return default


def rows_of(op: str, entries: Sequence[Entry]) -> list[Row]:
    """The rows of all configurations of an op, in order; an op whose configurations are lists has rows of 2025."""
    in_lists = all(entry.is_list for entry in entries)
    width = max((len(tensors_of(entry)) for entry in entries), default=0)
    rows: list[Row] = []
    for number, entry in enumerate(entries):
        for row in _list_rows(entry, width) if in_lists else _dict_rows(entry):
            row.aliases["traced_config_name"] = f"{op}_traced_{number}"
            rows.append(row)
    return _distinguished(rows) if in_lists else rows


def _distinguished(rows: list[Row]) -> list[Row]:
    """The same rows; where calls differ only in arguments that have no standard name, those become standard, too."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(repr(row.standard), []).append(row)
    needed: dict[str, None] = {}
    for same in groups.values():
        for name in dict.fromkeys(name for row in same for name in row.provenance if name not in _SEEN):
            if len({repr(row.provenance.get(name)) for row in same}) > 1:
                needed[name] = None
    for row in rows:
        row.standard |= {name: row.provenance.get(name) for name in needed}
    return rows


# --- Rows of 2025: one shape for all inputs, then each property of each input ---

_NAMES: dict[str, dict[int, str]] = {  # what sweep modules of that time call the arguments after the tensors
    "permute": {1: "dims"},
    "transpose": {1: "dim0", 2: "dim1"},
    "reshape": {1: "target_shape"},
    "typecast": {1: "output_dtype"},
    "untilize_with_unpadding": {1: "end_shape"},
    "tilize_with_val_padding": {1: "padded_shape", 2: "pad_value"},
    "nlp_concat_heads_decode": {1: "num_heads"},
    "nlp_create_qkv_heads": {2: "num_q_heads", 3: "num_kv_heads"},
    "nlp_create_qkv_heads_decode": {1: "num_heads", 2: "num_kv_heads"},
    "upsample": {1: "scale_factor", 2: "mode"},
    "gt": {1: "scalar"},
    "concat": {1: "dim"},
    "scaled_dot_product_attention_decode": {4: "is_causal", 8: "scale"},
    "max_pool2d": {
        1: "batch_size", 2: "input_h", 3: "input_w", 4: "channels", 5: "kernel_size", 6: "stride", 7: "padding",
        8: "dilation",
    },
}  # fmt: skip
_MORE_NAMES: dict[str, dict[int, str]] = {  # as ttnn's own signatures have them, for a run() that declares them
    "slice": {1: "starts", 2: "ends", 3: "step"},
    "topk": {1: "k", 2: "dim", 3: "largest", 4: "sorted"},
    "rms_norm": {1: "epsilon"},
    "layer_norm": {1: "epsilon"},
    "scaled_dot_product_attention": {4: "is_causal", 5: "scale"},
    "paged_scaled_dot_product_attention_decode": {4: "is_causal", 8: "scale"},
    "rotary_embedding_llama": {4: "is_decode_mode"},
    "paged_fill_cache": {4: "batch_idx"},
    "all_gather_async": {2: "dim", 4: "num_links"},
    "linear": {3: "transpose_a", 4: "transpose_b", 6: "dtype", 7: "program_config", 9: "compute_kernel_config"},
    "matmul": {2: "transpose_a", 3: "transpose_b", 5: "dtype", 6: "program_config", 8: "compute_kernel_config"},
    "add": {2: "dtype"},
    "multiply": {2: "dtype"},
    "untilize": {2: "use_multicore"},
    "interleaved_to_sharded": {2: "output_dtype"},
    "sharded_to_interleaved": {2: "output_dtype"},
}
_SWITCHES = frozenset(
    {"transpose_a", "transpose_b", "is_causal", "is_decode_mode", "largest", "sorted", "use_multicore"}
)


def _list_rows(entry: Entry, width: int) -> Iterator[Row]:
    tensors = tensors_of(entry)
    names = _NAMES.get(_short(entry.op), {})
    standard = _conv_row(entry) if _short(entry.op) == "conv2d" else _inputs(tensors, width)
    standard["output_memory_config"] = output_memory_config(entry)
    if width == 1:
        standard["storage_type"] = tensors[0].storage_type if tensors else None
    elif width == BINARY and len(tensors) < BINARY:
        standard["scalar"] = _scalar(entry)
    standard |= _named(entry, names)
    standard |= _special(entry, tensors)
    execution = entry.executions[0] if entry.executions else {}
    seen = {"traced_source": execution.get("source"), "traced_machine_info": execution.get("machine_info")}
    aliases = _inputs_apart(tensors) | _named(entry, _MORE_NAMES.get(_short(entry.op), {}))
    aliases |= {"memory_config": standard["output_memory_config"]}
    aliases |= {"storage_type": (tensors[0].storage_type if tensors else None) or _DEVICE, "scalar": None}
    yield Row(standard, {**seen, **_leftovers(entry, names)}, aliases)


def _short(op: str) -> str:
    return op.replace("::", ".").rpartition(".")[2]


def _inputs(tensors: Sequence[Tensor], width: int) -> Values:
    """Shapes under one name; one input bare, two as self and other, more by letter."""
    row: Values = {}
    if width == 1 and tensors:
        row["input_shape"] = tuple(tensors[0].shape)
    elif width == BINARY:
        names = ("self", "other")
        shapes = [tuple(tensor.shape) for tensor in tensors] + [None] * (BINARY - len(tensors))
        row["input_shape"] = dict(zip(names, shapes, strict=True))
    elif tensors:
        named = zip(LETTERS, tensors, strict=False)
        row["input_shape"] = {f"input_{letter}": tuple(tensor.shape) for letter, tensor in named}
    known = [tensor.properties() for tensor in tensors]
    absent = [dict.fromkeys(("dtype", "layout", "memory_config"))] * (width - len(tensors))
    for what in ("dtype", "layout", "memory_config"):
        row |= {f"input_{letter}_{what}": one[what] for letter, one in zip(LETTERS, known + absent, strict=False)}
    return row


def _inputs_apart(tensors: Sequence[Tensor]) -> Values:
    """The shapes under names of their own, as modules of 2026 have them."""
    shapes = {f"input_{letter}_shape": tuple(one.shape) for letter, one in zip(LETTERS, tensors, strict=False)}
    return shapes | {f"input_{letter}_tensor_placement": None for letter, _ in zip(LETTERS, tensors, strict=False)}


def _scalar(entry: Entry) -> object:
    """The number in the place of the second tensor."""
    values = [value for value in entry.arguments.values() if tensor_in(value) is None]
    return next((one for one in values if isinstance(one, int | float) and not isinstance(one, bool)), None)


def _named(entry: Entry, names: Mapping[int, str]) -> Values:
    found: Values = {}
    for argument, value in entry.arguments.items():
        name = names.get(-1 if (position := position_of(argument)) is None else position)
        if name is not None and tensor_in(value) is None:
            plain = _plain(value)
            found[name] = bool(plain) if name in _SWITCHES and isinstance(plain, int) else plain
    return found


def _plain(value: object) -> Any:
    """An argument of 2025: shapes and element types, too, were written in words of their own."""
    if isinstance(value, Mapping) and len(value) == 1 and "Shape" in value:
        return list(value["Shape"])
    if is_memory_config(value):
        return dict_to_memory_config(value)
    if isinstance(value, str) and value.startswith("DataType"):
        return parse_dtype(value)
    return parse_layout(value) if isinstance(value, str) and value.startswith("Layout") else value


def _leftovers(entry: Entry, names: Mapping[int, str]) -> Values:
    """The other arguments under ttnn's names or their positions; without what the tracer could not write."""
    known = _MORE_NAMES.get(_short(entry.op), {})
    return {
        known.get(position_of(name) or 0, name): _plain(value)
        for name, value in entry.arguments.items()
        if position_of(name) not in names
        and value is not None
        and not is_unreadable(value)
        and not tensors_of(Entry(entry.op, {name: value}))
    }


def _special(entry: Entry, tensors: Sequence[Tensor]) -> Values:
    match _short(entry.op):
        case "pad":
            return _pad_row(entry)
        case "linear" if len(tensors) >= BINARY:
            bias = tuple(tensors[2].shape) if len(tensors) > BINARY else None
            switches = {
                "transpose_a": bool(entry.arguments.get("arg3")),
                "transpose_b": bool(entry.arguments.get("arg4")),
            }
            shapes = {
                "input_shape": tuple(tensors[0].shape),
                "weight_shape": tuple(tensors[1].shape),
                "bias_shape": bias,
            }
            return shapes | switches | {"has_bias": bias is not None}
        case "embedding" if len(tensors) == BINARY:
            return _embedding_row(tensors)
        case "concat":
            named = zip(LETTERS, tensors, strict=False)
            return {"input_shape": {f"input_{letter}": tuple(tensor.shape) for letter, tensor in named}}
        case _:
            return {}


def _pad_row(entry: Entry) -> Values:
    """Two forms: how much on each side, or the padded shape and where the tensor begins in it."""
    first, second, third = (_plain(entry.arguments.get(name)) for name in ("arg1", "arg2", "arg3"))
    is_shape = isinstance(second, list)
    return {
        "padding": None if is_shape else first,
        "output_padded_shape": first if is_shape else None,
        "input_tensor_start": second if is_shape else None,
        "value": third if is_shape else second,
    }


def _embedding_row(tensors: Sequence[Tensor]) -> Values:
    indices, weight = tensors
    row: Values = {"embedding_args": (indices.shape[0], indices.shape[-1], weight.shape[-1], weight.shape[-2])}
    for name, tensor in (("input", indices), ("weight", weight)):
        row |= {f"{name}_{what}": value for what, value in tensor.properties().items()}
    return row | {"output_dtype": parse_dtype(weight.dtype)}


_CONV_SIZES = ("arg5", "arg4", "arg3", "arg6", "arg7")  # batch, output channels, input channels, height, width


def _conv_row(entry: Entry) -> Values:
    """A convolution as one tuple: sizes, kernel, stride, padding, groups, dilation, whether it has a bias."""
    given = entry.arguments
    kernel, stride, padding, dilation = (given.get(f"arg{number}") or [] for number in (8, 9, 10, 11))
    pads = [padding[0], padding[2]] if len(padding) == 4 else list(padding)  # noqa: PLR2004 - top, bottom, left, right
    sizes = [given.get(name) for name in _CONV_SIZES]
    specs = (*sizes, *kernel, *stride, *pads, given.get("arg12"), *dilation, tensor_in(given.get("arg14")) is not None)
    config = given.get("arg16")
    row = _inputs(tensors_of(entry), len(tensors_of(entry)))
    return row | {
        "input_specs": specs,
        "is_conv1d": False,
        "compute_config": config.get("WormholeComputeKernelConfig", config) if isinstance(config, Mapping) else config,
        "dtype": last_part(given["arg13"]).lower() if isinstance(given.get("arg13"), str) else None,
        "config_tensors_in_dram": True,
    }


# --- Rows of 2026: properties of each input, other arguments by their names, one row for each execution ---


def _dict_rows(entry: Entry) -> Iterator[Row]:
    row: Values = {}
    inputs: list[Tensor] = []
    for name, value in entry.arguments.items():
        tensor = tensor_in(value)
        by_position = entry.is_aten or position_of(name) is not None
        if tensor is not None and by_position:
            inputs.append(tensor)
        elif tensor is not None:
            row |= _columns(name, tensor)
        else:
            row[name] = parse_special_float(value) if by_position and not entry.is_aten else _keyword(value)
    for letter, tensor in zip(LETTERS, inputs, strict=False):
        row |= _columns(f"input_{letter}", tensor)
        if "HOST" in str(tensor.storage_type):
            row[f"input_{letter}_storage_type"] = tensor.storage_type
    if inputs and "output_memory_config" not in row:
        first = dict_to_memory_config(inputs[0].memory_config)
        row["output_memory_config"] = row.get("memory_config", first)
    aliases = _old_names(entry, inputs, row)
    for execution in entry.executions or [{}]:
        seen = {
            "traced_source": execution.get("source", "unknown"),
            "traced_machine_info": execution.get("machine_info"),
            "config_hash": entry.config_hash,
        }
        yield Row({**row, **seen}, {}, dict(aliases))


def _columns(prefix: str, tensor: Tensor) -> Values:
    named = {f"{prefix}_{what}": value for what, value in tensor.properties().items()}
    return {f"{prefix}_shape": tuple(tensor.shape), **named, f"{prefix}_tensor_placement": tensor.placement}


def _keyword(value: object) -> object:
    """An argument given by name: memory configurations, element types and other enums as objects, the rest as it is."""
    if is_memory_config(value):
        return dict_to_memory_config(value)
    return parse_special_float(parse_enum_value(value))


def _old_names(entry: Entry, inputs: Sequence[Tensor], row: Values) -> Values:
    """What modules of 2025 declare, for traces of 2026."""
    names = _NAMES.get(_short(entry.op), {}) | _MORE_NAMES.get(_short(entry.op), {})
    aliases = {name: value for name, value in _named(entry, names).items() if name not in row}
    aliases |= {name: value for name, value in _inputs(inputs, len(inputs)).items() if name not in row}
    stored = inputs[0].storage_type if inputs else None
    return aliases | {
        "storage_type": stored or _DEVICE,
        "memory_config": row.get("output_memory_config"),
        "scalar": None,
    }
