"""Any transformers model type at tiny size: its default configuration with every size reduced consistently."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from importlib.util import find_spec
from typing import Any

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.errors import ModelError
from torchstone.units import many

# --- Fewer layers: `--layers N` ---

COUNTS = (
    "num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_decoder_layers",
    "num_encoder_layers", "encoder_num_hidden_layers", "decoder_num_hidden_layers", "depth",
)  # fmt: skip


def keep_layers(config: PreTrainedConfig, layers: int) -> str:
    """Cut every stack of layers to the first few, in place, and say what was cut.

    A stack of that many layers stays as it is. Raises ModelError where every stack is shorter: a sweep would show the
    same model under several numbers.
    """
    if layers < 1:
        msg = f"a model needs at least one layer, not {layers}; give --layers 1 or more"
        raise ModelError(msg)
    cut: list[str] = []
    most = _cut(config, layers, cut, prefix="")
    if most == 0:
        msg = f"{config.model_type} has no layer count that could be reduced; drop --layers"
        raise ModelError(msg)
    if most < layers:
        longest = f"{many(most, 'layer')} in its longest stack"
        msg = f"{config.model_type} has {longest}, not {layers}; give --layers {most} or fewer"
        raise ModelError(msg)
    return f"layers: only the first {layers} of each stack are built ({', '.join(cut) or 'as many as there are'})"


def _cut(config: PreTrainedConfig, layers: int, cut: list[str], *, prefix: str) -> int:
    """Cut one configuration and its parts; the layers that the longest stack had."""
    if isinstance(getattr(config, "depths", None), list | tuple):
        return _cut_stages(config, layers, cut, prefix=prefix)
    values = config.to_dict()
    before = {name: values[name] for name in COUNTS if isinstance(values.get(name), int)}
    for name, count in before.items():
        if count > layers:
            setattr(config, name, layers)
            cut.append(f"{prefix}{name} {count} -> {layers}")
    most = max(before.values(), default=0)
    for name, value in list(vars(config).items()):
        if isinstance(value, PreTrainedConfig):
            most = max(most, _cut(value, layers, cut, prefix=f"{prefix}{name}."))
        elif _is_per_layer(value, before):
            setattr(config, name, value[:layers])
    return most


def _cut_stages(config: PreTrainedConfig, layers: int, cut: list[str], *, prefix: str) -> int:
    """A model in stages keeps its stages, each with its first layers; the layers that the longest one had."""
    depths = list(config.depths)
    kept = [min(depth, layers) for depth in depths]
    if kept != depths:
        cut.append(f"{prefix}depths {depths} -> {kept}")
        config.depths = kept
    return max(depths, default=0)


def _is_per_layer(value: object, counts: dict[str, int]) -> bool:
    """Whether a list has one entry for each layer."""
    return isinstance(value, list) and len(value) > 1 and len(value) in counts.values()


# --- Exceptions: model types whose sizes are constrained in a way that no rule below covers ---

Part = tuple[str, dict[str, object]]  # a model type and the keyword arguments of its configuration

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
_SERIES: Mapping[str, object] = {"prediction_length": 4, "context_length": 16}

_ROTARY: Mapping[str, object] = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
}
_ROTARY_HALF: Mapping[str, object] = {
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [1, 1, 2],
    }
}

_WITHOUT_SIZES_OF_HEADS = frozenset(("hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text", "ministral", "nemotron"))

OVERRIDES: Mapping[str, Mapping[str, object]] = {
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
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
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
    "granite4_vision": {"deepstack_layer_map": [[1, 0]], "downsample_rate": "4/8"},
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
    "nemotron_h_omni": {"image_token_id": 500},
    "paddleocr_vl_text": _ROTARY,
    "pp_formulanet_vision": {"post_conv_in_channels": 64, "post_conv_mid_channels": 64, "post_conv_out_channels": 64},
    "qwen2_5_omni_talker": _ROTARY,
    "qwen2_5_omni_text": _ROTARY,
    "qwen2_5_vl_text": _ROTARY,
    "qwen2_vl_text": _ROTARY,
    "qwen4_exp_text": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 32,
        "indexer_compress_ratio": 4,
    },
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
    "sapiens2_head": {"upsample_out_channels": [64, 32], "conv_out_channels": [32]},
    "step3p5": {"sliding_window": 8},
    "superpoint": {"keypoint_decoder_dim": 65},
    "textnet": {"hidden_sizes": [64, 64, 128, 256, 512]},
    "time_series_transformer": _SERIES,
    "voxtral": {"audio_token_id": 500},
    "xlstm": {"hidden_size": 128, "embedding_dim": 128},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
}

# Values that a model reads although its configuration class has no such field.
ADDED: Mapping[str, Mapping[str, object]] = {
    "moonshine_streaming": {"num_key_value_heads": 4},
    "pix2struct_text_model": {"initializer_range": 0.02},
    "qwen2_5_omni_thinker": {"vision_start_token_id": 401, "vision_end_token_id": 402},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 401, "vision_end_token_id": 402},
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 128},
    "shieldgemma2": {"yes_token_index": 11, "no_token_index": 12},
    "t5gemma2_text": {"dropout_rate": 0.0},
}


# --- Reconciling sizes: layers with per-layer lists, heads with rotary parts, images with patches ---

WIDTH = 64
VOCABULARY = 512
_SMALL_IMAGE = 64
_LARGE_PATCH = 14
_LAYER_KINDS = ("layer_types", "layers_block_type", "block_types", "attention_types")
_MAX_LAYERS = 8

Values = dict[str, Any]


def reconcile(values: Values, config: PreTrainedConfig) -> None:
    """Change reduced values in place until they are consistent; config is the one they were reduced from."""
    _reconcile_index_lists(values)
    _reconcile_layer_kinds(values, config)
    _cut_per_layer_lists(values, config)
    _reconcile_heads(values, config)
    _reconcile_rotary_sections(values, config)
    _reconcile_stages(values)
    _reconcile_image(values)
    _reconcile_outputs(values, config)


def is_index_list(name: str) -> bool:
    """Whether a list contains layer indices."""
    return name.endswith(("_indexes", "_indices", "hook_ids")) and not name.startswith("_")


def _reconcile_index_lists(values: Values) -> None:
    longest = max(
        (len(value) for name, value in values.items() if isinstance(value, list) and is_index_list(name)), default=0
    )
    for name in COUNTS:
        if isinstance(values.get(name), int) and longest:
            values[name] = max(values[name], longest)


def _reconcile_layer_kinds(values: Values, config: PreTrainedConfig) -> None:
    """Keep enough layers that each kind of layer occurs: some models cannot do without an attention layer."""
    count = next((name for name in COUNTS if isinstance(values.get(name), int)), None)
    for name in _LAYER_KINDS:
        kinds = getattr(config, name, None)
        if count is None or not isinstance(kinds, list | tuple) or not all(isinstance(kind, str) for kind in kinds):
            continue
        distinct = list(dict.fromkeys(kinds))
        if len(distinct) == 1 or len(kinds) <= values[count]:
            continue
        if name in values and len(kinds) == vars(config).get(count):
            values[name] = distinct if len(distinct) >= values[count] else (distinct * values[count])[: values[count]]
            values[count] = len(values[name])
        else:  # the kinds follow from other fields: take layers until all have occurred
            needed = max(kinds.index(kind) for kind in distinct) + 1
            values[count] = max(values[count], min(needed, _MAX_LAYERS))


def _cut_per_layer_lists(values: Values, config: PreTrainedConfig) -> None:
    """Cut lists with one entry per layer to the layers that are left."""
    for count in COUNTS:
        before, after = vars(config).get(count), values.get(count)
        if not isinstance(before, int) or not isinstance(after, int) or after >= before:
            continue
        for name, value in values.items():
            if isinstance(value, list | tuple) and len(value) == before:
                values[name] = value[:after]


def _reconcile_heads(values: Values, config: PreTrainedConfig) -> None:
    heads = values.get("num_attention_heads")
    if not isinstance(heads, int):
        return
    if "head_dim" in values and values["head_dim"] is None:
        values["head_dim"] = (values.get("hidden_size") or WIDTH) // heads
    if "num_key_value_heads" in values:
        before = vars(config)
        same = before.get("num_attention_heads") == before.get("num_key_value_heads")
        if values["num_key_value_heads"] is None or same:
            values["num_key_value_heads"] = heads
    if "vocab_size" in values and values["vocab_size"] is None:
        values["vocab_size"] = VOCABULARY


def _reconcile_rotary_sections(values: Values, config: PreTrainedConfig) -> None:
    """Rotary sections for time, height and width together cover half a head."""
    rope = vars(config).get("rope_parameters")
    heads = values.get("num_attention_heads")
    if not isinstance(rope, dict) or not isinstance(heads, int) or "mrope_section" not in rope:
        return
    width = values.get("head_dim") or (values.get("hidden_size") or WIDTH) // heads
    half = int(width * rope.get("partial_rotary_factor", 1.0)) // 2
    sections = rope["mrope_section"]
    small = [max(1, section * half // sum(sections)) for section in sections]
    small[0] += half - sum(small)
    values["rope_parameters"] = {**rope, "mrope_section": small}


def _reconcile_stages(values: Values) -> None:
    """A hierarchical model starts with a width its first heads divide, and ends a few patches wide."""
    heads = values.get("num_heads")
    if isinstance(heads, list | tuple) and isinstance(values.get("embed_dim"), int):
        values["embed_dim"] = 8 * heads[0]
        if isinstance(values.get("window_size"), int):
            values["window_size"] = 2


def _reconcile_image(values: Values) -> None:
    patch = _first_int(values.get("patch_size"))
    most = 4 * patch if patch and patch >= _LARGE_PATCH else _SMALL_IMAGE
    image = values.get("image_size")
    if isinstance(image, int):
        values["image_size"] = min(image, most)
    elif isinstance(image, list | tuple):
        values["image_size"] = type(image)(min(side, most) for side in image)


def _reconcile_outputs(values: Values, config: PreTrainedConfig) -> None:
    """A backbone returns as many feature maps as before, from the layers it still has."""
    values.pop("_out_features", None)
    values.pop("_out_indices", None)
    wanted = vars(config).get("_out_indices")
    if not wanted:
        return
    layers = values.get("num_hidden_layers")
    if isinstance(layers, int) and "depths" not in values:
        values["num_hidden_layers"] = layers = max(layers, len(wanted))
        values["out_indices"] = list(range(layers - len(wanted) + 1, layers + 1))
    else:
        values["out_indices"] = list(wanted)


def _first_int(value: object) -> int | None:
    if isinstance(value, Iterable):
        value = next(iter(value), None)
    return value if isinstance(value, int) else None


# --- Shrinking: every width becomes the same number, so that parts that must match still match ---

_LAYERS = 2
_POSITIONS = 512
_PLAIN_TOKENS = VOCABULARY - 100  # ids below stay; special tokens above get the last ids of the small vocabulary

# The first pattern that matches a field name decides; a size never grows.
_SIZES: tuple[tuple[str, int], ...] = (
    (r".*head_dim|d_kv|.*_rank|attention_head_size|dim_head|d_head|d_state|.*_d_state|state_size|ssm_state_size"
     r"|rotary_dim|rope_dim", 16),
    (r"(.*_)?(hidden_size|d_model|n_embd|dim|embed_dim|emb_dim|hidden_dim|embedding_size|projection_dim|width|proj_dim"
     r"|output_dim|embedding_dim|n_inner|hidden_channels|word_embed_proj_dim|lru_width|hidden_units|bottleneck_features"
     r"|fusion_hidden_size|output_channels|d_latents|qk_channels|v_channels|upsample_initial_channel|upsample_groups"
     r"|hidden_dimension|codevector_dim|attention_size|classifier_proj_size)", WIDTH),
    (r"num_pos_feats", WIDTH // 2),
    (r"(.*_)?(intermediate_size|ffn_dim|ffn_size|d_ff|mlp_dim|feedforward_dim|mlp_hidden_size|dim_feedforward)",
     2 * WIDTH),
    (r"(.*_)?(attention_heads|n_heads|n_head|num_heads|attn_heads)", 4),
    (r"(.*_)?(num_key_value_heads|num_kv_heads|kv_heads|n_head_kv)", 2),
    (r"(.*_)?(layers|num_blocks|depth|n_layer)", _LAYERS),
    (r"(?!type_).*vocab_size(_.*)?|vocab_size", VOCABULARY),
    (r"(.*_)?(num_experts|n_routed_experts|num_local_experts|moe_num_experts)", 8),
    (r"(.*_)?(num_experts_per_tok|moe_topk|moe_k|top_k_experts|moe_top_k)", 2),
    (r"n_group|num_expert_groups?", 2),
    (r"topk_group|num_limited_groups", 1),
    (r"max_position_embeddings|n_positions|max_seq_len|max_sequence_length", _POSITIONS),
    (r"num_queries|num_denoising|two_stage_num_proposals|num_object_queries|num_query_tokens", 16),
)  # fmt: skip
_PATTERNS = tuple((re.compile(pattern), size) for pattern, size in _SIZES)
_WIDTH_LISTS = re.compile(
    r"(.*_)?(hidden_sizes|embed_dims?|conv_dim|dims)|encoder_in_channels|decoder_in_channels|vision_features_channels"
)
_DEPTH_LISTS = ("depths", "num_block_repeats", "stage_num_blocks", "block_sizes")
_TOKENS = re.compile(r".*token_(id|index|ids)|.*_token")


def tiny_config(config_class: type[PreTrainedConfig]) -> PreTrainedConfig:
    """A small configuration of a class, for its default architecture."""
    parts = {name: _part(*part) for name, part in PARTS.get(config_class.model_type, {}).items()}
    return _Shrinker().shrink(config_class(**parts))


def default_config(config_class: type[PreTrainedConfig]) -> tuple[PreTrainedConfig, list[str]]:
    """The default configuration of a class, and what it needs to be built where its defaults are incomplete."""
    config = config_class()
    completed: list[str] = []
    _complete(config, completed, prefix="")
    return config, completed


def _complete(config: PreTrainedConfig, completed: list[str], *, prefix: str) -> None:
    """Give values to fields that a model needs and whose default is none."""
    for name, part in list(vars(config).items()):
        if isinstance(part, PreTrainedConfig):
            chosen = _replace_timm_backbone(part)
            if chosen is not part:
                setattr(config, name, chosen)
                completed.append(f"{prefix}{name}: a ResNet in place of {part.model_type}, which needs timm")
            _complete(chosen, completed, prefix=f"{prefix}{name}.")
    kind = config.model_type
    for name, value in {**OVERRIDES.get(kind, {}), **ADDED.get(kind, {}), **_sizes_of_heads(config)}.items():
        part = vars(config).get(name)
        inside = value if isinstance(part, PreTrainedConfig) and isinstance(value, dict) else {}
        wanted = [(config, name, value)] if part in (None, {}) else [(part, key, one) for key, one in inside.items()]
        for owner, key, one in wanted:
            if getattr(owner, key, None) in (None, {}):
                setattr(owner, key, _for_all_layers(one, owner))
                completed.append(f"{prefix}{key}: {one}, since it has no default")


def _sizes_of_heads(config: PreTrainedConfig) -> Mapping[str, object]:
    """The usual sizes, for types whose code needs them and whose defaults lack them."""
    if config.model_type not in _WITHOUT_SIZES_OF_HEADS:
        return {}
    heads = config.num_attention_heads
    return {"head_dim": config.hidden_size // heads, "num_key_value_heads": heads}


def _for_all_layers(value: object, config: PreTrainedConfig) -> object:
    """A list of kinds of layers, in turn for as many as there are; any other value as it is."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return value
    return [value[layer % len(value)] for layer in range(getattr(config, "num_hidden_layers", len(value)))]


def _part(model_type: str, values: dict[str, object]) -> PreTrainedConfig:
    return CONFIG_MAPPING[model_type](**values)


class _Shrinker:
    """Reduces a tree of configurations; remembers the small id of each special token, since the parts share them."""

    def __init__(self) -> None:
        self._tokens: dict[int, int] = {}

    def shrink(self, config: PreTrainedConfig) -> PreTrainedConfig:
        config_class = type(config)
        overrides = OVERRIDES.get(config.model_type, {})
        default = _default_config(config_class)
        values: Values = {}
        for field in fields(config_class):
            value = vars(config).get(field.name)  # getattr refuses a value that may differ from layer to layer
            if isinstance(value, PreTrainedConfig):
                values[field.name] = self.shrink(_replace_timm_backbone(value))
            else:
                is_default = default is not None and value == vars(default).get(field.name)
                values[field.name] = self._reduce(field.name, _declared_default(field) if is_default else value)
        values = {name: value for name, value in values.items() if value is not MISSING}
        values.update(overrides)
        reconcile(values, config)
        return config_class(**{**values, **overrides, **ADDED.get(config.model_type, {})})

    def _reduce(self, name: str, value: object) -> object:
        if isinstance(value, bool) or value is MISSING:
            return value
        if isinstance(value, int):
            return self._small_token_id(value) if _TOKENS.fullmatch(name) else _reduce_size(name, value)
        if isinstance(value, list | tuple) and value and all(type(item) is int for item in value):
            return self._reduce_list(name, list(value))
        return value

    def _reduce_list(self, name: str, value: list[int]) -> list[int]:
        if _TOKENS.fullmatch(name):
            return [self._small_token_id(item) for item in value]
        if is_index_list(name):
            return list(range(len(value)))
        if _WIDTH_LISTS.fullmatch(name):
            return _narrow_widths(value)
        if name in _DEPTH_LISTS:
            return [min(item, _LAYERS) for item in value]
        return value

    def _small_token_id(self, value: int) -> int:
        if value < _PLAIN_TOKENS:
            return value
        return self._tokens.setdefault(value, VOCABULARY - 1 - len(self._tokens))


def _replace_timm_backbone(config: PreTrainedConfig) -> PreTrainedConfig:
    """Use the ResNet of transformers in place of a backbone from a package that is not installed."""
    if config.model_type != "timm_backbone" or find_spec("timm") is not None:
        return config
    stages = [f"stage{index + 1}" for index in range(4)]
    wanted = len(vars(config).get("_out_indices") or vars(config).get("out_indices") or (3,))
    return CONFIG_MAPPING["resnet"](out_features=stages[-min(wanted, len(stages)) :])


def _default_config(config_class: type[PreTrainedConfig]) -> PreTrainedConfig | None:
    """The configuration without arguments, which distinguishes explicit values from derived ones."""
    if config_class.model_type in PARTS:
        return None
    return config_class()


def _declared_default(field: Field[object]) -> object:
    """The default as the class declares it, so that values derived from other fields are derived again."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def _reduce_size(name: str, value: int) -> int:
    for pattern, size in _PATTERNS:
        if pattern.fullmatch(name):
            return min(value, size)
    return value


def _narrow_widths(widths: list[int]) -> list[int]:
    """Divide all widths by the same number, so that heads and neighbouring parts still match."""
    divisor = 1
    while max(widths) // (2 * divisor) >= WIDTH and all(width % (2 * divisor) == 0 for width in widths):
        divisor *= 2
    return [width // divisor for width in widths]
