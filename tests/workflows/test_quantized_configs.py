"""Configurations of the user's own that say how their checkpoint is quantized, against counts by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import FineGrainedFP8Config, PreTrainedModel
from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.quantizers.base import HfQuantizer

from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load
from torchstone.models.tiny import tiny_config
from torchstone.models.weight_files import tensor_bytes
from torchstone.models.zoo.catalogue import find_entry
from torchstone.record.cost import CostTable, Formats
from torchstone.workflows.cost import CostRequest, PricingOptions, cost_model, price_trace
from torchstone.workflows.model_source import ModelRequest

_LAYERS, _WIDTH, _INNER, _WORDS = 3, 256, 384, 1000
_ATTENTION, _MLP = 4 * _WIDTH * _WIDTH, 3 * _WIDTH * _INNER
_MATRICES = _LAYERS * (_ATTENTION + _MLP)
_REST = 2 * _WORDS * _WIDTH + (2 * _LAYERS + 1) * _WIDTH  # embeddings, last layer, norms
_LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "dtype": "bfloat16", "hidden_size": _WIDTH,
    "intermediate_size": _INNER, "num_hidden_layers": _LAYERS, "num_attention_heads": 4, "num_key_value_heads": 4,
    "vocab_size": _WORDS, "tie_word_embeddings": False,
}  # fmt: skip


def _priced(folder: Path, quantization: object, config: dict[str, Any] = _LLAMA, **options: Any) -> CostTable:
    folder.mkdir(exist_ok=True)
    content = {**config, "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    asked = ModelRequest(model=str(folder), options=InputOptions(seq_len=8, **options), cached=False)
    return cost_model(CostRequest(model=asked)).table


def _compressed(**weights: object) -> dict[str, object]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}


_ROWS = _LAYERS * (4 * _WIDTH + 2 * _INNER + _WIDTH)
_COLUMNS = _LAYERS * (4 * _WIDTH + 2 * _WIDTH + _INNER)
_COUNT = _LAYERS * 7  # matrices
_DOUBLE = {"load_in_4bit": True, "bnb_4bit_use_double_quant": True}
# bitsandbytes keeps a table of 16 values with each matrix, and of 256 for the scales of its scales, with their offset.
_NF4_DOUBLE = _MATRICES // 2 + _MATRICES // 64 + _LAYERS * (4 * 4 + 3 * 6) * 4 + _COUNT * (64 + 1024 + 4)


def _torchao(kind: str, granularity: str, group: int | None = None, **data: object) -> dict[str, object]:
    one = {"_type": kind, "_data": {"granularity": {"_type": granularity, "_data": {"group_size": group}}, **data}}
    return {"quant_method": "torchao", "quant_type": {"default": one}}


def _packed(**weights: object) -> dict[str, object]:
    return _compressed(type="int", **weights) | {"format": "pack-quantized"}


@pytest.mark.parametrize(
    ("quantization", "size"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, _MATRICES + _MATRICES // (128 * 128) * 4),
        ({"quant_method": "fp8", "activation_scheme": "static"}, _MATRICES),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, _MATRICES + _ROWS * 4),
        # qweight, scales of 16 bits, qzeros, g_idx: gptqmodel 7.7.0, nn_modules/qlinear/__init__.py
        ({"quant_method": "gptq", "bits": 4, "group_size": 64},
         _MATRICES // 2 + _MATRICES // 128 * 5 + _COLUMNS * 4),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128},
         _MATRICES // 8 * 3 + _MATRICES // 1024 * 19 + _COLUMNS * 4),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, _MATRICES + _ROWS * 3 + _COLUMNS * 4),
        # the same without g_idx: autoawq 0.2.9, modules/linear/gemm.py
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, _MATRICES // 2 + _MATRICES // 256 * 5),
        ({"load_in_4bit": True}, _MATRICES // 2 + _MATRICES // 64 * 4 + _COUNT * 64),
        (_DOUBLE, _NF4_DOUBLE),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, _MATRICES + _ROWS * 4),
        (_compressed(num_bits=8, type="float", strategy="channel"), _MATRICES + _ROWS * 2),
        (_compressed(num_bits=8, type="float", strategy="tensor"), _MATRICES),
        (_compressed(num_bits=8, type="float", strategy="block", block_structure=[128, 128]),
         _MATRICES + _MATRICES // (128 * 128) * 2),
        (_packed(num_bits=4, group_size=32), _MATRICES // 2 + _MATRICES // 32 * 2),
        (_packed(num_bits=4, group_size=32, symmetric=False), _MATRICES // 2 + _MATRICES // 64 * 5),
        (_packed(num_bits=4, group_size=128, actorder="group"), _MATRICES // 2 + _MATRICES // 64 + _COLUMNS * 4),
        (_packed(num_bits=3, strategy="channel"), _MATRICES // 8 * 3 + _ROWS * 2),
        (_compressed(type="int", num_bits=4, group_size=128) | {"format": "int-quantized"},
         _MATRICES + _MATRICES // 64),
        (_compressed(num_bits=8, type="float", group_size=32), _MATRICES + _MATRICES // 32),
        (_compressed(num_bits=6, type="float", group_size=32), _MATRICES // 4 * 3 + _MATRICES // 32),
        (_compressed(num_bits=4, type="float", group_size=32), _MATRICES // 2 + _MATRICES // 32),
        (_compressed(num_bits=4, type="float", group_size=16), _MATRICES // 2 + _MATRICES // 16),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, _MATRICES // 2 + _MATRICES // 16),
        (_torchao("Int8WeightOnlyConfig", "PerRow"), _MATRICES + _ROWS * 5),
        (_torchao("Float8WeightOnlyConfig", "PerRow"), _MATRICES + _ROWS * 4),
        (_torchao("IntxWeightOnlyConfig", "PerGroup", 32), _MATRICES + _MATRICES // 32 * 3),
        (_torchao("Int4WeightOnlyConfig", "", group_size=128), _MATRICES // 2 + _MATRICES // 128 * 4),
        ({"quant_method": "quanto", "weights": "int8"}, _MATRICES + _ROWS * 2),
        ({"quant_method": "quanto", "weights": "int4"}, _MATRICES // 2 + _MATRICES // 128 * 4),
        ({"quant_method": "quanto", "weights": "float8"}, _MATRICES + _ROWS * 2),
    ],
)  # fmt: skip
def test_matrices_are_priced_as_the_configuration_says_that_they_are_stored(
    quantization: dict[str, object], size: int, tmp_path: Path
) -> None:
    table = _priced(tmp_path, quantization)
    assert table.totals.parameter_bytes == size + 2 * _REST
    assert table.conventions.formats.source.startswith("as published: ")


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "hqq"},
        {"quant_method": "gptq", "bits": 5, "group_size": 128},
        {"quant_method": "gptq", "bits": 4, "group_size": 0},
        {"quant_method": "bitsandbytes"},
        {"quant_method": "quanto", "weights": None},
        _torchao("Int8WeightOnlyConfig", "PerRow") | {"include_input_output_embeddings": True},
        {"quant_method": "torchao", "quant_type": {"default": "int4_weight_only"}},
        {"quant_method": "torchao", "quant_type": "int4_weight_only"},
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*down.*": {}}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["re:.*mlp.*"], "weights": {}}}},
        {"bits": 4},
        {"quant_method": "fp8", "weight_block_size": [128, 128], "expert_dtype": "fp4"},
        _compressed(num_bits=8, type="float", group_size=64),
    ],
)
def test_a_quantization_whose_sizes_are_not_known_is_named(quantization: object, tmp_path: Path) -> None:
    table = _priced(tmp_path, quantization)
    assert table.totals.parameter_bytes == 2 * (_MATRICES + _REST)
    assert table.conventions.formats.source.startswith("not as published: ")


def test_modules_that_a_configuration_leaves_out_keep_their_dtype(tmp_path: Path) -> None:
    """Also in a layer that equals the others, which is captured once for all of them."""
    skipped = ["model.layers.1.mlp", "model.layers.2", "re:.*q_proj", "lm_head"]
    table = _priced(tmp_path, {"quant_method": "fp8", "modules_to_not_convert": skipped})
    matrices = 2 * (_ATTENTION - _WIDTH * _WIDTH) + _MLP  # the attentions of layers 0 and 1, the MLP of layer 0
    assert table.totals.parameter_bytes == 2 * (_MATRICES + _REST) - matrices


_HEAD = _WORDS * _WIDTH


@pytest.mark.parametrize(
    ("quantization", "quantized"),
    [
        ({"quant_method": "fp8", "modules_to_not_convert": "lm_head"}, _MATRICES),
        ({"quant_method": "fp8", "modules_to_not_convert": ["q_proj"]}, _MATRICES + _HEAD - _LAYERS * _WIDTH * _WIDTH),
        ({"quant_method": "fp8", "ignored_layers": ["proj", "lm_head"]}, 0),  # an end of all names
        ({"quant_method": "fp8", "modules_to_not_convert": [r"model\.layers\.(0|2)", "lm_head"]}, _MATRICES // 3),
        (
            {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["model.layers.*.mlp"]},
            _LAYERS * (_ATTENTION - 4 * _WIDTH * 4) + _HEAD - _WORDS * 4,  # with scales of 32 bits
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["*self_attn*"]}, _LAYERS * _MLP),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["model.layers.1*"]}, _MATRICES // 3 * 2),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["proj"]}, _MATRICES),
        (_compressed(num_bits=8, type="float") | {"ignore": ["re:.*mlp.*"]}, _LAYERS * _ATTENTION + _HEAD),
    ],
)
def test_lists_of_modules_are_read_as_the_libraries_do(
    quantization: dict[str, object], quantized: int, tmp_path: Path
) -> None:
    assert _priced(tmp_path, quantization).totals.parameter_bytes == 2 * (_MATRICES + _REST) - quantized


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"kv_cache_scheme": {"num_bits": 8, "type": "float"}},
            "; it has scales for a KV cache in 8 bits, which --kv prices",
        ),
        (
            {"kv_cache_scheme": None, "kv_cache_quant_algo": "FP8"},
            "; it has scales for a KV cache in FP8, which --kv prices",
        ),
        ({"kv_cache_scheme": None}, "for each row"),
        ({"kv_cache_scheme": "fp8"}, "for each row"),
    ],
)
def test_a_cache_that_is_quantized_is_named(asked: dict[str, object], said: str, tmp_path: Path) -> None:
    table = _priced(tmp_path, _compressed(num_bits=8, type="float", strategy="channel") | asked)
    assert table.conventions.formats.source.endswith(said)


def _of_experts(quantization: dict[str, object], folder: Path, version: str | None) -> CostTable:
    config = tiny_config(CONFIG_MAPPING["mixtral"]).to_dict() | {"dtype": "bfloat16", "transformers_version": version}
    return _priced(folder, quantization, config)


@pytest.mark.parametrize(
    "quantization", [{"load_in_4bit": True}, {"load_in_8bit": True}, {"quant_method": "quanto", "weights": "int8"}]
)
def test_experts_in_one_tensor_are_left_as_they_are_by_libraries_that_convert_linear_layers(
    quantization: dict[str, object], tmp_path: Path
) -> None:
    """transformers 5 keeps all experts of a layer in one parameter; before, each was a linear layer."""
    usual = _of_experts({}, tmp_path, None)
    model, _ = load(str(tmp_path), options=InputOptions(seq_len=8))
    experts = sum(2 * one.numel() for one in model.parameters() if one.dim() == 3)
    now, unknown, before = (_of_experts(quantization, tmp_path, one) for one in ("5.22.2", None, "4.46.0"))
    assert usual.totals.parameter_bytes > now.totals.parameter_bytes == unknown.totals.parameter_bytes > experts
    assert before.totals.parameter_bytes < now.totals.parameter_bytes - experts * 0.45
    assert now.conventions.formats.source.endswith("experts are not, as transformers 5 does not quantize them")
    assert before.conventions.formats.source.endswith("experts are counted as quantized")


@pytest.mark.parametrize("shards", [1, 2])
def test_weight_files_of_another_size_than_the_configuration_says_are_noted(shards: int, tmp_path: Path) -> None:
    parts = [{f"part.{number}": torch.zeros(3, 1_200_000 // shards, dtype=torch.uint8)} for number in range(shards)]
    names = [f"model-{number}.safetensors" for number in range(shards)] if shards > 1 else ["model.safetensors"]
    for name, part in zip(names, parts, strict=True):
        save_file(part, tmp_path / name)
    if shards > 1:
        index = {"weight_map": {key: name for name, part in zip(names, parts, strict=True) for key in part}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    said = "the weight files have 3.43 MiB of tensors, and the parameters are priced with "
    assert tensor_bytes(tmp_path) == 3_600_000
    (note,) = _priced(tmp_path, {"quant_method": "gptq", "bits": 4, "group_size": 64}).notes
    assert note.startswith(said)
    (note,) = _priced(tmp_path, {"quant_method": "hqq"}).notes
    assert note.startswith(said)
    assert not _priced(tmp_path, None).notes  # as far as nothing is said about them


def test_weight_files_of_the_size_that_the_configuration_says_are_not_noted(tmp_path: Path) -> None:
    size = _priced(tmp_path, {"quant_method": "awq", "bits": 4, "group_size": 64}).totals.parameter_bytes
    save_file({"weight": torch.zeros(size, dtype=torch.uint8)}, tmp_path / "model.safetensors")
    assert _priced(tmp_path, {"quant_method": "awq", "bits": 4, "group_size": 64}).notes == ()


def test_a_weight_file_that_is_none_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1", encoding="utf-8")
    assert tensor_bytes(tmp_path) is None
    assert tensor_bytes(tmp_path / "elsewhere") is None


_EXPERTS = [f"model.layers.0.mlp.experts.{one}.{name}_proj" for one in range(8) for name in ("gate", "up", "down")]


@pytest.mark.parametrize(
    ("model_type", "in_files", "in_modules"),
    [
        ("llava", ["language_model.model.layers.0.mlp", "vision_tower"],
         ["model.language_model.layers.0.mlp", "model.vision_tower"]),
        ("gemma3", ["re:vision_tower.*"], ["model.vision_tower"]),
        ("qwen3_moe", _EXPERTS, ["model.layers.0.mlp.experts"]),
    ],
)  # fmt: skip
def test_modules_may_have_the_names_of_older_files(
    model_type: str, in_files: list[str], in_modules: list[str], tmp_path: Path
) -> None:
    config = tiny_config(CONFIG_MAPPING[model_type]).to_dict() | {"dtype": "bfloat16"}
    sizes = [
        _priced(tmp_path, _compressed(num_bits=8, type="float") | {"ignore": names}, config).totals.parameter_bytes
        for names in (in_files, in_modules, [])
    ]
    assert sizes[0] == sizes[1] > sizes[2]


def _in_fp8(model: PreTrainedModel, quantization: dict[str, Any]) -> int:
    """The bytes of parameters as transformers itself makes them for such a file."""
    asked = FineGrainedFP8Config(**quantization)
    kept = HfQuantizer.get_modules_to_not_convert(model, asked.modules_to_not_convert, model._keep_in_fp32_modules)
    replace_with_fp8_linear(model, modules_to_not_convert=kept, quantization_config=asked)
    return sum(
        one.numel() * (1 if one.dtype == torch.float8_e4m3fn else 4 if "scale_inv" in name else 2)
        for name, one in model.named_parameters()
    )


@pytest.mark.parametrize("skipped", [None, ["gate", "lm_head", "lm_loss", "fc1"]], ids=["all", "listed"])
@pytest.mark.parametrize(
    "model_type", ["gpt2", "t5", "llama4_text", "phimoe", "mistral3", "clip", "musicgen", "dia", "xlnet", "qwen2_moe"]
)
def test_fp8_has_the_bytes_that_transformers_stores(model_type: str, skipped: list[str] | None, tmp_path: Path) -> None:
    config = tiny_config(CONFIG_MAPPING[model_type]).to_dict() | {"dtype": "bfloat16"}
    asked = {"weight_block_size": [128, 128], "modules_to_not_convert": skipped}
    table = _priced(tmp_path, {"quant_method": "fp8", **asked}, config)
    model, _ = load(str(tmp_path), options=InputOptions(seq_len=8))
    assert isinstance(model, PreTrainedModel)
    assert table.totals.parameter_bytes == _in_fp8(model, asked)


@pytest.mark.parametrize(
    ("model", "quantization"),
    [
        ("openai/gpt-oss-20b", {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}),
        ("deepseek-ai/DeepSeek-V3", {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}),
    ],
)
def test_a_published_configuration_costs_what_the_zoo_says(
    model: str, quantization: dict[str, object], tmp_path: Path
) -> None:
    entry = find_entry(model)
    assert entry is not None
    ours = _priced(tmp_path, quantization, entry.config, layers=5)
    asked = ModelRequest(model=model, options=InputOptions(seq_len=8, layers=5))
    assert ours.totals.parameter_bytes == cost_model(CostRequest(model=asked)).table.totals.parameter_bytes


def test_a_folder_with_the_name_of_a_zoo_model_is_no_such_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = _priced(Path("DeepSeek-V3"), None)
    assert table.totals.parameter_bytes == 2 * (_MATRICES + _REST)
    assert table.conventions.formats == Formats()


def test_another_dtype_is_that_of_all_weights(tmp_path: Path) -> None:
    table = _priced(tmp_path, {"quant_method": "fp8"}, dtype="float32")
    assert table.totals.parameter_bytes == 4 * (_MATRICES + _REST)


def test_a_saved_trace_knows_its_checkpoint(tmp_path: Path) -> None:
    request = CostRequest(model=ModelRequest(model=str(tmp_path), options=InputOptions(seq_len=8), cached=False))
    first = _priced(tmp_path, {"quant_method": "fp8"})
    outcome = cost_model(request)
    assert outcome.trace.checkpoint is not None
    assert outcome.table.totals == first.totals
    assert price_trace(outcome.trace, PricingOptions()).totals.parameter_bytes == 2 * (_MATRICES + _REST)
