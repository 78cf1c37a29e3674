from pathlib import Path

import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.models.load_model import load
from torchstone.models.pretrained import quiet_and_offline
from torchstone.models.tiny import tiny_config

PUBLIC_LIST = [
    "bert", "roberta", "distilbert", "albert", "deberta-v2", "electra", "gpt2", "opt", "gpt_neox", "bloom", "llama",
    "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "falcon", "mixtral", "qwen3_moe", "deepseek_v3",
    "gpt_oss", "olmoe", "jamba", "mamba", "mamba2", "rwkv", "recurrent_gemma", "t5", "bart", "pegasus", "longformer",
    "big_bird", "whisper", "wav2vec2", "speecht5", "encodec", "vit", "deit", "swin", "convnext", "resnet",
    "efficientnet", "mobilenet_v2", "segformer", "detr", "deformable_detr", "clip", "siglip", "blip-2", "llava",
    "sam", "videomae", "perceiver", "patchtst", "dpt",
]  # fmt: skip
SAMPLE = [
    "bert",
    "llama",
    "deepseek_v3",
    "jamba",
    "mamba2",
    "t5",
    "whisper",
    "swin",
    "detr",
    "clip",
    "llava",
    "patchtst",
]
MOST_PARAMETERS = 20_000_000


def runs_once(model_type: str) -> None:
    with quiet_and_offline(), torch.no_grad():
        model, inputs = load(f"tiny:{model_type}", device="cpu")
        model(*inputs.args, **inputs.kwargs)
    assert sum(parameter.numel() for parameter in model.parameters()) < MOST_PARAMETERS
    assert len(inputs.notes) > 1


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_tiny_model_runs_on_generated_inputs(model_type: str) -> None:
    runs_once(model_type)


@pytest.mark.architectures
@pytest.mark.parametrize("model_type", [name for name in PUBLIC_LIST if name not in SAMPLE])
def test_every_architecture_of_the_public_list_runs_at_tiny_size(model_type: str) -> None:
    runs_once(model_type)


def test_layers_widths_and_vocabulary_are_small() -> None:
    config = tiny_config(CONFIG_MAPPING["llama"])
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (2, 64, 512)
    assert config.head_dim * config.num_attention_heads == config.hidden_size


def test_special_tokens_stay_inside_the_small_vocabulary_and_agree_between_parts() -> None:
    config = tiny_config(CONFIG_MAPPING["qwen2_vl"])
    assert config.image_token_id < config.text_config.vocab_size
    assert len({config.image_token_id, config.video_token_id, config.vision_start_token_id}) == 3


def test_each_kind_of_layer_is_kept() -> None:
    config = tiny_config(CONFIG_MAPPING["qwen3_next"])
    assert set(config.layer_types) == {"linear_attention", "full_attention"}


def test_a_backbone_from_a_package_that_is_missing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.models.tiny.find_spec", lambda _name: None)
    assert tiny_config(CONFIG_MAPPING["detr"]).backbone_config.model_type == "resnet"


def test_the_public_list_is_the_documented_one() -> None:
    page = Path(__file__).parents[2] / "docs" / "how-it-works" / "models.md"
    assert all(f"`{name}`" in page.read_text() for name in PUBLIC_LIST)
