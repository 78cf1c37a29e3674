from collections import Counter

import pytest

from tests.formula.derive.benches import bench, seeded
from torchstone.errors import InputError
from torchstone.formula.database.files import Formulas, load_shipped, short_name
from torchstone.formula.derive import sampling_plans
from torchstone.formula.derive.validate import Options, Validated
from torchstone.formula.derive.validate_library import Source, options_of, source_of, validate_sources

SHIPPED = Formulas(entries=load_shipped().modules)
PROMISED = {
    "Linear", "Embedding", "LayerNorm", "RMSNorm", "Conv1d", "Conv2d", "BatchNorm2d", "MultiheadAttention",
    "TransformerEncoderLayer", "TransformerBlock", "MultiHeadAttention", "MLP", "LlamaForCausalLM",
    "MistralForCausalLM", "MixtralForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "GemmaForCausalLM",
    "GPT2LMHeadModel",
    "BertForMaskedLM", "T5ForConditionalGeneration", "DeepseekV3ForCausalLM", "ViTForImageClassification",
    "LlamaAttention", "MistralAttention", "MixtralAttention", "Qwen3Attention", "Qwen3MoeAttention", "GemmaAttention",
    "GPT2Attention", "BertSelfAttention", "T5Attention", "DeepseekV3Attention", "ViTAttention",
    "LlamaRotaryEmbedding", "LlamaRMSNorm", "LlamaMLP", "LlamaDecoderLayer", "DeepseekV3MoE", "T5Block", "GPT2Block",
}  # fmt: skip


def validated(*sources: Source, points: int = 1) -> list[Validated]:
    return list(validate_sources(SHIPPED, sources, bench(), seeded(7), points, lambda _: None))


def test_sizes_that_a_model_cannot_take_are_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sampling_plans._RANDOM_RANGES, "relative_attention_num_buckets", (2, 2))

    with pytest.raises(InputError, match=r"cannot be run: ZeroDivisionError.*choose others with --seed"):
        validated(Source("t5", "", alone=False))


def test_the_shipped_database_has_every_promised_class() -> None:
    assert PROMISED - {short_name(entry.module_path) for entry in SHIPPED.entries.values()} == set()


def test_every_derived_entry_that_ships_was_checked_at_points_it_was_not_fitted_to() -> None:
    derived = [entry for entry in SHIPPED.entries.values() if entry.validation.validator == "derived"]

    assert len(derived) > 100
    for entry in derived:
        assert entry.evidence is not None
        assert entry.evidence.max_error == "0"
        assert "held out" in entry.evidence.routes


@pytest.mark.parametrize("name", ["Linear", "Embedding", "LayerNorm", "Conv1d", "TransformerEncoderLayer"])
def test_shipped_formulas_of_torch_are_what_runs(name: str) -> None:
    (result,) = validated(Source(name, "", alone=True), points=2)

    assert result.differences == []
    assert any(short_name(one) == name for one in result.checked)


@pytest.mark.parametrize(("model_type", "variant"), [("llama", ""), ("gpt2", ""), ("mixtral", ""), ("llama", "eager")])
def test_shipped_formulas_of_models_are_what_runs(model_type: str, variant: str) -> None:
    (result,) = validated(Source(model_type, variant, alone=False), points=2)

    assert result.differences == []
    assert result.unknown == {}
    assert len(result.checked) >= 4


@pytest.mark.heavy
def test_the_whole_shipped_database_is_what_runs() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    found = (source_of(entry, CONFIG_MAPPING) for entry in SHIPPED.entries.values())
    sources = dict.fromkeys(one for one in found if one is not None)

    results = validated(*sources, points=4)

    assert [difference for result in results for difference in result.differences] == []
    checked = Counter(name for result in results for name in result.checked)
    assert len(checked) > 150


def test_an_entry_is_measured_alone_or_inside_its_model() -> None:
    types = {"llama": 1}

    assert source_of(SHIPPED.find("torch.nn.Linear"), types) == Source("Linear", "", alone=True)
    assert source_of(SHIPPED.find("LlamaAttention[eager]"), types) == Source("llama", "eager", alone=False)
    assert source_of(SHIPPED.find("TransformerBlock"), types) is None


def test_a_variant_names_its_code_path() -> None:
    assert options_of("") == Options()
    assert options_of("eager+no_cache") == Options(attention="eager", use_cache=False)
