"""How the weights that a configuration describes are stored: `quantization_config`, as a number format of matrices."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import nn

from torchstone.models.quantized_matrices import quantized_matrices
from torchstone.record.trace import Checkpoint

_FIELDS = ("quantization_config", "compression_config")
_OWN_SCHEMES = ("dynamic", "modules_in_block_to_quantize")
_DEEPSEEK_BLOCK = [128, 128]
_GROUPED_BITS = (4, 8)
_MICROSCALING = 16  # values that share a scale in NVFP4
_MXFP8 = 32  # values that share a scale in MXFP8
_MOST_SHOWN = 60


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
    found = _format(asked)
    only = quantized_matrices(model, _method(asked), asked) if found.name else ()
    known = found.name if only else None
    return Checkpoint(dtype=dtype, quantization=found.words, weights=known, only=only)


def _quantization(config: object) -> Mapping[str, object] | None:
    parts = (config, getattr(config, "text_config", None))
    asked = next((value for part in parts for name in _FIELDS if (value := getattr(part, name, None))), None)
    if asked is None or isinstance(asked, Mapping):
        return asked
    return {"quant_method": str(asked)}


def _method(asked: Mapping[str, object]) -> str:
    loads = any(asked.get(one) for one in ("load_in_8bit", "load_in_4bit"))  # of files from before methods had names
    return str(asked.get("quant_method") or ("bitsandbytes" if loads else "a method that is not named"))


def _format(asked: Mapping[str, object]) -> _Format:
    """The format of a scheme; None where its sizes are not known."""
    method = _method(asked)
    bits, group = asked.get("bits", asked.get("w_bit")), asked.get("group_size", asked.get("q_group_size"))
    match method:
        case "fp8" if asked.get("expert_dtype", method) != method:
            return _Format(None, f"{method} with experts in {asked['expert_dtype']!s:.20}")
        case "fp8" | "fbgemm_fp8":
            return _float8(method, asked.get("weight_block_size"), asked)
        case "mxfp4":
            return _Format("mxfp4", method)
        case "gptq" | "awq":
            if any(asked.get(name) for name in _OWN_SCHEMES):
                return _Format(None, f"{method} with schemes for single modules")
            return _integers(method, bits, group, "without zero points" + (" and order" if method == "gptq" else ""))
        case "bitsandbytes" if asked.get("load_in_8bit") or asked.get("_load_in_8bit"):
            return _Format("int8_row", "bitsandbytes, 8 bits; counted with scales of 16 bits, not 32")
        case "bitsandbytes" if asked.get("load_in_4bit") or asked.get("_load_in_4bit"):
            return _Format("int4_g64", "bitsandbytes, 4 bits; counted with a scale of 16 bits for 64 values")
        case "compressed-tensors":
            return _compressed(asked)
        case "modelopt" if asked.get("quant_algo") in ("FP8", "NVFP4"):
            name = "nvfp4" if asked["quant_algo"] == "NVFP4" else "float8_e4m3fn"
            return _Format(name, f"modelopt {asked['quant_algo']}; scales of whole matrices are not counted")
    return _Format(None, f"quantization with {method[:_MOST_SHOWN]}")


def _float8(method: str, block: object, asked: Mapping[str, object]) -> _Format:
    if asked.get("modules_to_convert"):
        method += " with tables that keep their dtype here"
    if block == _DEEPSEEK_BLOCK:
        scales = "; scales are counted with 32 bits" if asked.get("scale_fmt") == "ue8m0" else ""
        return _Format("float8_block", f"{method}, a scale for each block of 128 x 128{scales}")
    scales = "scales of rows or whole matrices" if block is None else f"scales of blocks of {block!s:.20}"
    return _Format("float8_e4m3fn", f"{method}; {scales} are not counted")


def _integers(method: str, bits: object, group: object, without: str) -> _Format:
    if bits not in _GROUPED_BITS or not isinstance(group, int) or (group < 1 and group != -1):
        return _Format(None, f"{method} with {bits!s:.20} bits in groups of {group!s:.20}")
    groups = "rows" if group == -1 else f"groups of {group}"
    name = f"int{bits}_row" if group == -1 else f"int{bits}_g{group}"
    return _Format(name, f"{method}, {bits} bits in {groups}; counted with scales of 16 bits, {without}")


def _grouped_float8(group: object) -> _Format:
    if group == _MXFP8:
        return _Format("mxfp8", "compressed-tensors, 8-bit floats in groups of 32; counted with scales of 8 bits")
    return _Format(None, f"compressed-tensors with 8-bit floats in groups of {group!s:.20}")


def _compressed(asked: Mapping[str, object]) -> _Format:
    """Compressed tensors: each group of modules has a scheme of its own; known where all linear layers have one."""
    groups = asked.get("config_groups")
    parts = list(groups.values()) if isinstance(groups, Mapping) else []
    schemes = [one.get("weights") for one in parts if isinstance(one, Mapping) and one.get("targets") == ["Linear"]]
    scheme = schemes[0] if len(schemes) == len(parts) == 1 else None
    if not isinstance(scheme, Mapping):
        return _Format(None, "compressed-tensors" + (" with schemes for single modules" if parts else ""))
    bits, kind, group = scheme.get("num_bits"), scheme.get("type"), scheme.get("group_size")
    if kind == "float" and bits == 8 and group is not None:  # noqa: PLR2004 - bits
        return _grouped_float8(group)
    if kind == "float" and bits == 8:  # noqa: PLR2004 - bits
        return _float8("compressed-tensors, 8-bit floats", scheme.get("block_structure"), asked)
    if kind == "float" and bits == 4 and group == _MICROSCALING:  # noqa: PLR2004 - bits
        return _Format("nvfp4", "compressed-tensors, NVFP4; scales of whole matrices are not counted")
    if kind == "int":
        return _integers("compressed-tensors", bits, group or -1, "without zero points")
    return _Format(None, f"compressed-tensors with {bits!s:.20} bits of type {kind!s:.20}")
