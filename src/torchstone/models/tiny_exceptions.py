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

# Fields set to what the type needs at this size.
_SERIES: Mapping[str, Any] = {"prediction_length": 4, "context_length": 16}

_ROTARY: Mapping[str, Any] = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
}
_ROTARY_HALF: Mapping[str, Any] = {
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [1, 1, 2],
    }
}

OVERRIDES: Mapping[str, Mapping[str, Any]] = {
    "align": {"projection_dim": 80},
    "align_vision_model": {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320},
    "autoformer": _SERIES,
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "bamba": {"attn_layer_indices": [1]},
    "bit": {"num_groups": 4, "hidden_sizes": [16, 32, 48, 64]},
    "blip-2": {"image_token_index": 500},
    "chameleon": {"vocabulary_map": {"<image>": 500, "IMGIMGA": 4}},
    "clap_audio_model": {"hidden_size": 128},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0}},
    "deepseek_v2": {"num_experts_per_tok": 2, "n_routed_experts": 8},
    "deepseek_ocr2_text": {"num_experts_per_tok": 2, "mlp_layer_types": ["dense", "sparse"]},
    "diffusion_gemma_text": {"num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 64},
    "dots1": {"num_experts_per_tok": 2, "n_routed_experts": 8, "n_shared_experts": 1},
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320},
    "efficientloftr": {"hidden_size": 256, "num_attention_heads": 8, "stage_num_blocks": [1, 1, 1, 1]},
    "emu3": {"vocabulary_map": {"<image>": 500}},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "fastspeech2_conformer_hifigan": {"model_in_dim": 80},
    "gemma3": {"mm_tokens_per_image": 4},
    "gemma3n_text": {"num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "full_attention"]},
    "glm4v_moe_text": _ROTARY_HALF,
    "glm4v_text": _ROTARY,
    "glm_image_text": _ROTARY,
    "glm_ocr_text": _ROTARY,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "hgnet_v2": {
        "stem_channels": [3, 16, 16],
        "stage_in_channels": [16, 8, 16, 32],
        "stage_mid_channels": [8, 8, 8, 8],
        "stage_out_channels": [8, 16, 32, 64],
        "hidden_sizes": [8, 16, 32, 64],
    },
    "hunyuan_vl_text": _ROTARY,
    "informer": _SERIES,
    "instructblip": {"image_token_index": 500},
    "instructblipvideo": {"video_token_index": 500},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    "layoutlmv3": {"coordinate_size": 12, "shape_size": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "llama4_vision_model": {"intermediate_size": 256},
    "lilt": {"hidden_size": 48},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1, "chunk_size": 16},
    "mobilevit": {"hidden_sizes": [16, 32, 64]},
    "molmo2_adapter": {"vision_feature_layer": [0, 1]},
    "nemotron_h": {"mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2},
    "paddleocr_vl_text": _ROTARY,
    "qwen2_5_omni_talker": _ROTARY,
    "qwen2_5_omni_text": _ROTARY,
    "qwen2_5_vl_text": _ROTARY,
    "qwen2_vl_text": _ROTARY,
    "reformer": {"axial_pos_embds_dim": [16, 48], "axial_pos_shape": [16, 32], "attn_layers": ["local", "lsh"]},
    "sam2_hiera_det_model": {
        "hidden_size": 24,
        "embed_dim_per_stage": [24, 48, 96, 192],
        "num_attention_heads_per_stage": [1, 2, 4, 8],
        "blocks_per_stage": [1, 2, 2, 1],
        "global_attention_blocks": [4],
        "window_size_per_stage": [8, 4, 8, 4],
        "image_size": [256, 256],
    },
    "sam2_prompt_encoder": {"image_size": 256},
    "sam2_vision_model": {
        "backbone_channel_list": [192, 96, 48, 24],
        "backbone_feature_sizes": [[64, 64], [32, 32], [16, 16]],
    },
    "step3p5": {"sliding_window": 8},
    "superpoint": {"keypoint_decoder_dim": 65},
    "textnet": {"hidden_sizes": [64, 64, 128, 256, 512]},
    "time_series_transformer": _SERIES,
    "voxtral": {"audio_token_id": 500},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
}

# What a model reads though its configuration class has no such field.
ADDED: Mapping[str, Mapping[str, Any]] = {
    "moonshine_streaming": {"num_key_value_heads": 4},
    "pix2struct_text_model": {"initializer_range": 0.02},
    "qwen2_5_omni_thinker": {"vision_start_token_id": 401, "vision_end_token_id": 402},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 401, "vision_end_token_id": 402},
    "shieldgemma2": {"yes_token_index": 11, "no_token_index": 12},
    "t5gemma2_text": {"dropout_rate": 0.0},
}
