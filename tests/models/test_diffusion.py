"""Models of diffusers: parameters as their papers and cards state, inputs from the configuration."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from torchstone.errors import InputError, MissingExtraError, ModelError
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load
from torchstone.workflows.cost import CostRequest, cost_model
from torchstone.workflows.model_source import ModelRequest

needs_diffusers = pytest.mark.skipif(find_spec("diffusers") is None, reason="diffusers is not installed")
SD_1_5: dict[str, Any] = {
    "_class_name": "UNet2DConditionModel",
    "sample_size": 64,
    "in_channels": 4,
    "out_channels": 4,
    "block_out_channels": [320, 640, 1280, 1280],
    "cross_attention_dim": 768,
    "attention_head_dim": 8,
    "layers_per_block": 2,
    "down_block_types": ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
    "up_block_types": ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3,
}
SDXL = SD_1_5 | {
    "sample_size": 128,
    "block_out_channels": [320, 640, 1280],
    "cross_attention_dim": 2048,
    "attention_head_dim": [5, 10, 20],
    "transformer_layers_per_block": [1, 2, 10],
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
}
SD_3: dict[str, Any] = {
    "_class_name": "SD3Transformer2DModel",
    "sample_size": 128,
    "in_channels": 16,
    "num_layers": 24,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "caption_projection_dim": 1536,
    "pooled_projection_dim": 2048,
    "pos_embed_max_size": 192,
}
FLUX: dict[str, Any] = {
    "_class_name": "FluxTransformer2DModel",
    "in_channels": 64,
    "num_layers": 19,
    "num_single_layers": 38,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 768,
    "guidance_embeds": True,
}


def written(folder: Path, config: dict[str, Any]) -> str:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


@needs_diffusers
@pytest.mark.parametrize(
    ("config", "published", "rounding"),
    [
        (SD_1_5, 860e6, 1e6),  # card of Stable Diffusion v1: "an 860M UNet"
        (SDXL, 2.6e9, 0.05e9),  # paper of SDXL, table 1: 2.6B
        (SD_3, 2e9, 0.05e9),  # paper of Stable Diffusion 3: 2B, depth 24
        (FLUX, 12e9, 0.5e9),  # card of FLUX.1: 12 billion
    ],
)
def test_parameters_are_those_of_the_card(
    tmp_path: Path, config: dict[str, Any], published: float, rounding: float
) -> None:
    model, inputs = load(written(tmp_path, config), options=InputOptions(batch_size=2))
    assert abs(sum(one.numel() for one in model.parameters()) - published) <= rounding
    assert {len(value) for name, value in inputs.kwargs.items() if name in ("sample", "hidden_states", "timestep")} == {
        2
    }


@needs_diffusers
def test_a_step_of_a_small_unet_is_priced_whole(tmp_path: Path) -> None:
    small = SD_1_5 | {"block_out_channels": [32, 32, 32, 32], "cross_attention_dim": 16, "norm_num_groups": 8}
    options = InputOptions(image_size=128, dtype="bfloat16")
    outcome = cost_model(CostRequest(model=ModelRequest(model=written(tmp_path, small), options=options)))
    assert outcome.trace.failure is None
    assert not outcome.table.unpriced
    assert outcome.table.conventions.dtypes == ("bfloat16",)
    assert outcome.trace.ops[0].op  # it ran


@needs_diffusers
def test_what_does_not_apply_is_refused(tmp_path: Path) -> None:
    name = written(tmp_path, SD_1_5)
    with pytest.raises(InputError, match=r"--seq-len does not apply to .*config.json, a model of diffusers"):
        load(name, options=InputOptions(seq_len=8))
    with pytest.raises(ModelError, match="names 'NoSuchModel', and the installed diffusers has no such model class"):
        load(written(tmp_path, {"_class_name": "NoSuchModel"}))


@pytest.mark.skipif(find_spec("diffusers") is not None, reason="diffusers is installed")
def test_without_diffusers_the_extra_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match=r"torchstone\[diffusers\]"):
        load(written(tmp_path, SD_1_5))
