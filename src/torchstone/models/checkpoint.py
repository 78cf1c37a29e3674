"""How the weights that a configuration describes are stored: `quantization_config`, as a number format of matrices.

The formats are those that the libraries write, compared tensor by tensor in benchmarks/quantized_libraries.py.
"""

from collections.abc import Mapping
from typing import NamedTuple

from torch import nn

from torchstone.models.quantized_matrices import quantized_matrices
from torchstone.record.tensor import element_bits
from torchstone.record.trace import Checkpoint

_FIELDS = ("quantization_config", "compression_config")
_OWN_SCHEMES = ("dynamic", "modules_in_block_to_quantize")
_BLOCK = [128, 128]
_PACKED_BITS = range(2, 9)
_BYTE = 8
_GPTQ_BITS = (2, 3, 4, 8)
_QUANTO_GROUP = 128
_FLOAT_GROUPS = {
    (8, 32): "mxfp8",
    (6, 32): "mxfp6",
    (4, 32): "mxfp4",
    (4, 16): "nvfp4",
}  # by bits and values of a scale
_OF_BYTES = ("Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig")  # of torchao
_OF_FLOATS = ("Float8WeightOnlyConfig", "Float8DynamicActivationFloat8WeightConfig")
_KNOWS_EXPERTS = ("fp8", "fbgemm_fp8", "mxfp4")
_EXPERTS_STAY = "; experts are not, as transformers 5 does not quantize them"
_MOST_SHOWN = 60
_Asked = Mapping[str, object]


class _Format(NamedTuple):
    """A number format, and the scheme in words, with what the format does not count."""

    name: str | None
    words: str


def find_checkpoint(model: nn.Module, config: object) -> Checkpoint:
    """Read how a configuration says that the weights of its model are stored."""
    dtype = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    asked = _quantization(config)
    if asked is None:
        return Checkpoint(dtype=dtype)
    found = _format(asked, element_bits(dtype) or _BYTE)
    chosen = quantized_matrices(model, _method(asked), asked, _version(config)) if found.name else None
    only = chosen.patterns if chosen else ()
    words = found.words
    if chosen and chosen.has_experts and _method(asked) not in _KNOWS_EXPERTS:
        words += "; experts are counted as quantized" if chosen.with_experts else _EXPERTS_STAY
    words += _of_cache(asked)
    return Checkpoint(dtype=dtype, quantization=words, weights=found.name if only else None, only=only)


def _quantization(config: object) -> _Asked | None:
    parts = (config, getattr(config, "text_config", None))
    asked = next((value for part in parts for name in _FIELDS if (value := getattr(part, name, None))), None)
    if asked is None or isinstance(asked, Mapping):
        return asked
    return {"quant_method": str(asked)}


def _of_cache(asked: _Asked) -> str:
    """What is said of a cache that is quantized, too: it is a choice of the server that runs the model."""
    scheme = asked.get("kv_cache_scheme")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") is not None:
        kind = f"{scheme['num_bits']!s:.20} bits"
    else:
        kind = f"{asked.get('kv_cache_quant_algo') or ''!s:.20}"
    return f"; it has scales for a KV cache in {kind}, which --kv prices" if kind else ""


def _version(config: object) -> int | None:
    """The major version of the transformers that wrote a configuration."""
    major = str(getattr(config, "transformers_version", None) or "").partition(".")[0]
    return int(major) if major.isdecimal() else None


def _method(asked: _Asked) -> str:
    loads = any(asked.get(one) for one in ("load_in_8bit", "load_in_4bit"))  # of files from before methods had names
    return str(asked.get("quant_method") or ("bitsandbytes" if loads else "a method that is not named"))


def _format(asked: _Asked, bits: int) -> _Format:
    """The format of a scheme for a model with elements of this width; None where its sizes are not known."""
    method = _method(asked)
    match method:
        case "fp8":
            return _float8(method, asked)
        case "fbgemm_fp8":
            return _Format("float8_row_s32", f"{method}, a scale of 32 bits for each row")
        case "mxfp4":
            return _Format(method, method)
        case "gptq" | "awq":
            return _gptq(method, asked)
        case "bitsandbytes":
            return _bitsandbytes(asked)
        case "compressed-tensors":
            return _compressed(asked, bits)
        case "torchao":
            return _torchao(asked, bits)
        case "quanto":
            return _quanto(asked.get("weights"), bits)
        case "modelopt" if asked.get("quant_algo") in ("FP8", "NVFP4"):
            name = "nvfp4" if asked["quant_algo"] == "NVFP4" else "float8_e4m3fn"
            return _Format(name, f"modelopt {asked['quant_algo']}; scales of whole matrices are not counted")
    return _Format(None, f"quantization with {method[:_MOST_SHOWN]}")


def _float8(method: str, asked: _Asked) -> _Format:
    block = asked.get("weight_block_size")
    if asked.get("expert_dtype", method) != method:
        return _Format(None, f"{method} with experts in {asked['expert_dtype']!s:.20}")
    if asked.get("modules_to_convert"):
        method += " with tables that keep their dtype here"
    if block == _BLOCK:
        scales = "; scales are counted with 32 bits" if asked.get("scale_fmt") == "ue8m0" else ""
        return _Format("float8_block", f"{method}, a scale for each block of 128 x 128{scales}")
    scales = "scales of whole matrices" if block is None else f"scales of blocks of {block!s:.20}"
    return _Format("float8_e4m3fn", f"{method}; {scales} are not counted")


def _gptq(method: str, asked: _Asked) -> _Format:
    """GPTQ and AWQ: integers in groups with a scale and a zero point each; GPTQ keeps the group of each column, too."""
    if any(asked.get(name) for name in _OWN_SCHEMES):
        return _Format(None, f"{method} with schemes for single modules")
    bits, group = asked.get("bits", asked.get("w_bit")), asked.get("group_size", asked.get("q_group_size"))
    ending = f"_z{bits}_order" if method == "gptq" else f"_z{bits}"
    with_parts = "scales of 16 bits, zero points" + (" and the group of each column" if method == "gptq" else "")
    return _integers(method, bits if bits in _GPTQ_BITS else f"{bits!s:.20}", group, ending, with_parts)


def _integers(method: str, bits: object, group: object, ending: str, parts: str) -> _Format:
    """Integers with scales for groups of a row or, where the group is -1, for whole rows."""
    if bits not in _PACKED_BITS or not isinstance(group, int) or (group < 1 and group != -1):
        return _Format(None, f"{method} with {bits!s:.20} bits in groups of {group!s:.20}")
    groups = "rows" if group == -1 else f"groups of {group}"
    name = f"int{bits}_row" if group == -1 else f"int{bits}_g{group}"
    return _Format(name + ending, f"{method}, {bits} bits in {groups}, with {parts}")


def _bitsandbytes(asked: _Asked) -> _Format:
    if asked.get("load_in_8bit") or asked.get("_load_in_8bit"):
        return _Format("int8_row_s32", "bitsandbytes, 8 bits in rows, with scales of 32 bits")
    if not (asked.get("load_in_4bit") or asked.get("_load_in_4bit")):
        return _Format(None, "quantization with bitsandbytes")
    if asked.get("bnb_4bit_use_double_quant"):
        return _Format(
            "nf4_double", "bitsandbytes, 4 bits in groups of 64, with scales of 8 bits (double quantization)"
        )
    return _Format("nf4", "bitsandbytes, 4 bits in groups of 64, with scales of 32 bits")


def _compressed(asked: _Asked, width: int) -> _Format:
    """Compressed tensors: each group of modules has a scheme of its own; known where all linear layers have one."""
    groups = asked.get("config_groups")
    parts = [one for one in groups.values() if isinstance(one, Mapping)] if isinstance(groups, Mapping) else []
    scheme = parts[0].get("weights") if len(parts) == 1 and parts[0].get("targets") == ["Linear"] else None
    if not isinstance(scheme, Mapping):
        return _Format(None, "compressed-tensors" + (" with schemes for single modules" if parts else ""))
    bits, kind, group = scheme.get("num_bits"), scheme.get("type"), scheme.get("group_size")
    if kind == "float":
        return _compressed_floats(scheme, width)
    if kind != "int":
        return _Format(None, f"compressed-tensors with {bits!s:.20} bits of type {kind!s:.20}")
    stored = parts[0].get("format") or asked.get("format")
    in_bytes = stored is not None and stored != "pack-quantized"  # one byte for each value, whatever its bits
    zero = f"_z{_BYTE if in_bytes else bits}" if scheme.get("symmetric") is False else ""
    order = "_order" if scheme.get("actorder") in ("group", True) else ""
    parts_of = f"scales of {width} bits{' and zero points' if zero else ''}"
    if bits in _PACKED_BITS and bits != _BYTE and in_bytes:
        parts_of += f"; its values of {bits} bits are stored in bytes ({stored!s:.20})"
        bits = _BYTE
    return _integers("compressed-tensors", bits, group or -1, f"{_scale(width)}{zero}{order}", parts_of)


def _compressed_floats(scheme: _Asked, width: int) -> _Format:
    bits, group, strategy = scheme.get("num_bits"), scheme.get("group_size"), scheme.get("strategy")
    method = f"compressed-tensors, {bits!s:.20}-bit floats"
    known = _FLOAT_GROUPS.get((bits, group)) if isinstance(bits, int) and isinstance(group, int) else None
    if known is not None:
        single = "; scales of whole matrices are not counted" if known == "nvfp4" else ""
        return _Format(known, f"{method} in groups of {group}, with scales of 8 bits ({known}){single}")
    if bits != _BYTE or group is not None:
        return _Format(None, f"{method} in groups of {group!s:.20}")
    if scheme.get("block_structure") == _BLOCK:
        return _Format(f"float8_block_s{width}", f"{method}, a scale of {width} bits for each block of 128 x 128")
    if strategy == "channel":
        return _Format(f"float8_row{_scale(width)}", f"{method}, a scale of {width} bits for each row")
    return _Format("float8_e4m3fn", f"{method}; scales of whole matrices are not counted")


def _torchao(asked: _Asked, width: int) -> _Format:
    """The configurations of torchao that apply to all linear layers; its integers are stored in bytes but for int4."""
    kinds = asked.get("quant_type")
    one = kinds.get("default") if isinstance(kinds, Mapping) and len(kinds) == 1 else None
    name, data = (one.get("_type"), one.get("_data")) if isinstance(one, Mapping) else (None, None)
    method = f"torchao {name or 'with schemes for single modules'!s:.60}"
    if not isinstance(data, Mapping) or asked.get("include_input_output_embeddings"):
        return _Format(None, method)
    granularity = data.get("weight_granularity", data.get("granularity"))
    of_group = granularity.get("_data") if isinstance(granularity, Mapping) else None
    group = of_group.get("group_size") if isinstance(of_group, Mapping) else None
    in_rows = isinstance(granularity, Mapping) and granularity.get("_type") in ("PerRow", "PerAxis")
    if name in _OF_BYTES and in_rows:
        return _integers(method, _BYTE, data.get("group_size") or -1, "_s32_z8", "scales of 32 bits and zero points")
    if name in _OF_FLOATS and in_rows:
        return _Format("float8_row_s32", f"{method}, a scale of 32 bits for each row")
    if name == "Int4WeightOnlyConfig":
        return _integers(method, 4, data.get("group_size"), "_z16", "scales and zero points of 16 bits")
    if name in ("IntxWeightOnlyConfig", "Int8DynamicActivationIntxWeightConfig"):
        parts = f"scales of {width} bits and zero points; values are stored in bytes"
        return _integers(method, _BYTE, -1 if in_rows else group, f"{_scale(width)}_z8", parts)
    return _Format(None, method)


def _quanto(kind: object, width: int) -> _Format:
    if kind == "int8":
        return _integers("quanto", _BYTE, -1, _scale(width), f"scales of {width} bits")
    if kind == "float8":
        return _Format(f"float8_row{_scale(width)}", f"quanto, 8-bit floats, a scale of {width} bits for each row")
    if kind in ("int4", "int2"):
        bits = int(str(kind).removeprefix("int"))
        return _integers(
            "quanto", bits, _QUANTO_GROUP, f"{_scale(width)}_z{width}", f"scales of {width} bits and shifts"
        )
    return _Format(None, f"quanto with {kind!s:.20}")


def _scale(width: int) -> str:
    """How the name of a format says the width of its scales."""
    return "" if width == 16 else f"_s{width}"  # noqa: PLR2004 - bits that need no words
