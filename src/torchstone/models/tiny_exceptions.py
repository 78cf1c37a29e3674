"""Model types whose tiny configuration needs a word: numbers that must fit in a way no rule can tell."""

from collections.abc import Mapping
from typing import Any

Part = tuple[str, dict[str, Any]]  # a model type and what to say to its configuration

# Composite types without defaults: their parts.
PARTS: Mapping[str, Mapping[str, Part]] = {
    "encoder-decoder": {
        "encoder": ("bert", {}),
        "decoder": ("bert", {"is_decoder": True, "add_cross_attention": True}),
    },
    "vision-encoder-decoder": {
        "encoder": ("vit", {}),
        "decoder": ("bert", {"is_decoder": True, "add_cross_attention": True}),
    },
    "speech-encoder-decoder": {
        "encoder": ("wav2vec2", {}),
        "decoder": ("bert", {"is_decoder": True, "add_cross_attention": True}),
    },
    "vision-text-dual-encoder": {"vision_config": ("vit", {}), "text_config": ("bert", {})},
    "rag": {"question_encoder": ("dpr", {}), "generator": ("bart", {})},
    "musicgen": {"text_encoder": ("t5", {}), "audio_encoder": ("encodec", {}), "decoder": ("musicgen_decoder", {})},
    "musicgen_melody": {
        "text_encoder": ("t5", {}),
        "audio_encoder": ("encodec", {}),
        "decoder": ("musicgen_melody_decoder", {}),
    },
}

# Fields left as the class has them.
KEEP: Mapping[str, tuple[str, ...]] = {}

# Fields set to what the type needs at this size.
OVERRIDES: Mapping[str, Mapping[str, Any]] = {
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1, "chunk_size": 16},
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320},
    "align_vision_model": {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320},
    "blip-2": {"image_token_index": 500},
    "instructblip": {"image_token_index": 500},
    "instructblipvideo": {"video_token_index": 500},
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
}
