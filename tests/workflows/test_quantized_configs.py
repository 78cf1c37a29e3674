"""Configurations of the user's own that say how their checkpoint is quantized, against counts by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from torchstone.models.inputs import InputOptions
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


@pytest.mark.parametrize(
    ("quantization", "size"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, _MATRICES + _MATRICES // (128 * 128) * 4),
        ({"quant_method": "fp8", "activation_scheme": "static"}, _MATRICES),
        ({"quant_method": "gptq", "bits": 4, "group_size": 64}, _MATRICES // 2 + _MATRICES // 64 * 2),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, _MATRICES // 2 + _MATRICES // 128 * 2),
        ({"load_in_4bit": True}, _MATRICES // 2 + _MATRICES // 64 * 2),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True},
         _MATRICES + _LAYERS * 2 * (4 * _WIDTH + 2 * _INNER + _WIDTH)),
        (_compressed(num_bits=8, type="float", strategy="channel"), _MATRICES),
        (_compressed(num_bits=4, type="int", group_size=32), _MATRICES // 2 + _MATRICES // 32 * 2),
        (_compressed(num_bits=4, type="float", group_size=16), _MATRICES // 2 + _MATRICES // 16),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, _MATRICES // 2 + _MATRICES // 16),
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
        {"quant_method": "gptq", "bits": 3, "group_size": 128},
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*down.*": {}}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["re:.*mlp.*"], "weights": {}}}},
        {"bits": 4},
    ],
)
def test_a_quantization_whose_sizes_are_not_known_is_named(quantization: object, tmp_path: Path) -> None:
    table = _priced(tmp_path, quantization)
    assert table.totals.parameter_bytes == 2 * (_MATRICES + _REST)
    assert table.conventions.formats.source.startswith("not as published: ")


def test_modules_that_a_configuration_leaves_out_keep_their_dtype(tmp_path: Path) -> None:
    """Also in a layer that equals the others, which is captured once for all of them."""
    skipped = ["model.layers.1.mlp", "model.layers.2", "re:.*q_proj"]
    table = _priced(tmp_path, {"quant_method": "fp8", "modules_to_not_convert": skipped})
    matrices = 2 * (_ATTENTION - _WIDTH * _WIDTH) + _MLP  # the attentions of layers 0 and 1, the MLP of layer 0
    assert table.totals.parameter_bytes == 2 * (_MATRICES + _REST) - matrices


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
