"""Bytes of weights that quantization libraries store, against what `cost` says of the same configuration.

`python benchmarks/quantized_libraries.py [TEXT...]`: small models are quantized by the library itself on the CPU and
saved; what the tensors of their files take (quanto saves none: what those of the model take) is set beside `cost` of
the folder. It needs accelerate, bitsandbytes, compressed-tensors, optimum-quanto and torchao, which torchstone does
not: a library that is not installed is left out and named. With texts, only rows that have one of them in their names.
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    PreTrainedModel,
    QuantoConfig,
    TorchAoConfig,
)
from transformers.utils import logging

from torchstone.models.inputs import InputOptions
from torchstone.models.weight_files import tensor_bytes
from torchstone.workflows.cost import CostRequest, cost_model
from torchstone.workflows.model_source import ModelRequest

PACKAGES = ("bitsandbytes", "compressed-tensors", "optimum-quanto", "torchao", "transformers", "torch")
_SIZES = {"num_hidden_layers": 2, "dtype": "bfloat16", "tie_word_embeddings": False, "num_key_value_heads": 2}
MODELS = {
    "llama": AutoConfig.for_model(
        "llama", hidden_size=1024, intermediate_size=2816, num_attention_heads=8, vocab_size=1000, **_SIZES
    ),
    "qwen2, biases": AutoConfig.for_model(
        "qwen2", hidden_size=256, intermediate_size=640, num_attention_heads=4, vocab_size=101, **_SIZES
    ),
    "llama, odd and tied": AutoConfig.for_model(
        "llama", hidden_size=132, intermediate_size=130, num_attention_heads=2, vocab_size=101,
        **{**_SIZES, "tie_word_embeddings": True},
    ),
    "mixtral": AutoConfig.for_model(
        "mixtral", hidden_size=256, intermediate_size=512, num_attention_heads=4, vocab_size=200, num_local_experts=4,
        **_SIZES,
    ),
}  # fmt: skip
PRESETS = ("W8A8", "W4A16", "W4A16_ASYM", "W3A16", "W4A8", "FP8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4", "MXFP4", "MXFP8")
_Quantize = Callable[[Path], PreTrainedModel]


def quantizations() -> Iterator[tuple[str, _Quantize]]:
    """Each row: a name, and what makes a quantized model of an unquantized folder."""
    if _is_there("bitsandbytes"):
        yield "bitsandbytes 4 bits", _loaded(lambda: BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"))
        twice = {"load_in_4bit": True, "bnb_4bit_use_double_quant": True}
        yield "bitsandbytes 4 bits, double", _loaded(lambda: BitsAndBytesConfig(**twice))
        yield "bitsandbytes 8 bits", _loaded(lambda: BitsAndBytesConfig(load_in_8bit=True))
    if _is_there("optimum-quanto"):
        for kind in ("int8", "int4", "int2", "float8"):
            yield f"quanto {kind}", _loaded(partial(QuantoConfig, weights=kind))
    if _is_there("torchao"):
        import torchao.quantization as ao

        group, four = ao.granularity.PerGroup(32), getattr(torch, "int4")  # noqa: B009 - not in torch's stubs
        yield "torchao int8", _loaded(lambda: TorchAoConfig(ao.Int8WeightOnlyConfig()))
        yield "torchao float8", _loaded(lambda: TorchAoConfig(ao.Float8WeightOnlyConfig()))
        intx = ao.IntxWeightOnlyConfig(weight_dtype=four, granularity=group)
        yield "torchao intx, 4 bits in bytes", _loaded(lambda: TorchAoConfig(intx))
    if _is_there("compressed-tensors"):
        for preset in PRESETS:
            yield f"compressed-tensors {preset}", partial(_compressed, preset)


def _is_there(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _loaded(config: Callable[[], Any]) -> _Quantize:
    return lambda folder: AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=config(), dtype=torch.bfloat16, device_map="cpu"
    )


def _compressed(preset: str, folder: Path) -> PreTrainedModel:
    """A model in a scheme of compressed tensors; all scales are one, which changes no size."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config, preset_name_to_scheme

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    groups = {"group_0": preset_name_to_scheme(preset, ["Linear"])}
    apply_quantization_config(model, QuantizationConfig(config_groups=groups, ignore=["lm_head"]))
    for name, tensor in model.named_parameters():
        if name.endswith("_scale"):
            tensor.data.fill_(1)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    save = model.save_pretrained
    model.save_pretrained = lambda target: (save(target), compressor.update_config(target))
    return model


def _stored(model: PreTrainedModel, folder: Path) -> int:
    """Bytes of a model's tensors: of the files, or of the model where its library saves none."""
    asked = getattr(model.config, "quantization_config", None)  # compressed tensors write theirs into the file alone
    if asked is None or asked.quant_method != "quanto":
        model.save_pretrained(folder)
        return tensor_bytes(folder) or 0
    from torchstone.capture.describe import spec_of

    model.config.save_pretrained(folder)
    once = {id(one): one for one in model.parameters()}
    return sum(spec_of(one).size_bytes or 0 for one in once.values())


def compare(base: Path, quantize: _Quantize) -> tuple[int, int, str]:
    """The bytes that a library stores, those that `cost` says, and what it calls them."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        stored = _stored(quantize(base), folder)
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if content.get("quantization_config") is None:
            return stored, 0, "the library wrote no quantization_config"
        request = ModelRequest(model=place, options=InputOptions(seq_len=8), cached=False)
        table = cost_model(CostRequest(model=request)).table
    noted = " (noted)" if any("weight files" in one for one in table.notes) else ""
    return stored, table.totals.parameter_bytes, table.conventions.formats.source + noted


def main() -> None:
    """Print one row for each model and library."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    print("with " + ", ".join(f"{one} {version(one) if _is_there(one) else '(not installed)'}" for one in PACKAGES))
    print("\n| model | quantization | bytes stored | bytes by `cost` | difference | `cost` says |")
    print("|---|---|---:|---:|---:|---|")
    for model_name, config in MODELS.items():
        with TemporaryDirectory() as place:
            torch.manual_seed(0)
            AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(place)
            for name, quantize in quantizations():
                if sys.argv[1:] and not any(text in f"{model_name} {name}" for text in sys.argv[1:]):
                    continue
                try:
                    stored, found, words = compare(Path(place), quantize)
                except (ValueError, RuntimeError) as error:  # sizes that a library does not take
                    print(f"| {model_name} | {name} | refused | | | {str(error).splitlines()[0][:90]} |", flush=True)
                    continue
                difference = f"{(found - stored) / stored:+.2%}"
                print(f"| {model_name} | {name} | {stored:,} | {found:,} | {difference} | {words} |", flush=True)


if __name__ == "__main__":
    main()
