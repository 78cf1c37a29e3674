"""Any transformers model type at tiny size: its default configuration with every size reduced alike.

Every width becomes the same number, so that a part which must fit another part still fits it.
"""

import re
from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from importlib.util import find_spec
from typing import Any

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.models.layers import COUNTS
from torchstone.models.tiny_exceptions import KEEP, OVERRIDES, PARTS

_WIDTH = 64
_LAYERS = 2
_VOCABULARY = 512
_POSITIONS = 512
_SMALL_IMAGE = 64
_LARGE_PATCH = 14

# The first pattern that fits a name decides; a number is never made larger.
_SIZES: tuple[tuple[str, int], ...] = (
    (r".*head_dim|d_kv|.*_rank|attention_head_size|dim_head|d_head|d_state|.*_d_state|state_size|ssm_state_size", 16),
    (r"(.*_)?(hidden_size|d_model|n_embd|dim|embed_dim|emb_dim|hidden_dim|embedding_size|projection_dim|width|proj_dim"
     r"|output_dim|embedding_dim|n_inner|hidden_channels|word_embed_proj_dim|lru_width|hidden_units|bottleneck_features"
     r"|fusion_hidden_size|output_channels|d_latents|qk_channels|v_channels|upsample_initial_channel"
     r"|codevector_dim|attention_size|classifier_proj_size)", _WIDTH),
    (r"(.*_)?(intermediate_size|ffn_dim|ffn_size|d_ff|mlp_dim|feedforward_dim|mlp_hidden_size|dim_feedforward)",
     2 * _WIDTH),
    (r"(.*_)?(attention_heads|n_heads|n_head|num_heads|attn_heads)", 4),
    (r"(.*_)?(num_key_value_heads|num_kv_heads|kv_heads|n_head_kv)", 2),
    (r"(.*_)?(layers|num_blocks|depth|n_layer|resampler_depth)", _LAYERS),
    (r"(?!type_).*vocab_size(_.*)?|vocab_size", _VOCABULARY),
    (r"(.*_)?(num_experts|n_routed_experts|num_local_experts|moe_num_experts)", 8),
    (r"(.*_)?(num_experts_per_tok|moe_topk|moe_k|top_k_experts|moe_top_k)", 2),
    (r"n_group|num_expert_groups?", 2),
    (r"topk_group|num_limited_groups", 1),
    (r"max_position_embeddings|n_positions|max_seq_len|max_sequence_length", _POSITIONS),
    (r"num_queries|num_denoising|two_stage_num_proposals|num_object_queries|num_query_tokens", 16),
)  # fmt: skip
_PATTERNS = tuple((re.compile(pattern), size) for pattern, size in _SIZES)
_WIDTH_LISTS = re.compile(
    r"hidden_sizes|.*hidden_sizes|embed_dims?|encoder_in_channels|conv_dim|dims|.*_dims|stem_channels|stage_.*_channels"
    r"|embedding_dims|channels|decoder_in_channels|vision_features_channels"
)
_INDEX_LISTS = re.compile(r".*(_indexes|_indices|hook_ids)|out_layers|deepstack_.*_layers")
_TOKENS = re.compile(r".*token_(id|index|ids)|.*_token")


def tiny_config(config_class: type[PreTrainedConfig]) -> PreTrainedConfig:
    """A small configuration of a class, for its default architecture."""
    parts = {name: _part(*part) for name, part in PARTS.get(config_class.model_type, {}).items()}
    return _Shrinker().shrink(config_class(**parts))


def _part(model_type: str, values: dict[str, Any]) -> PreTrainedConfig:
    return CONFIG_MAPPING[model_type](**values)


class _Shrinker:
    """Reduces a tree of configurations; remembers which small id each special token got, since the parts share them."""

    def __init__(self) -> None:
        self._tokens: dict[int, int] = {}

    def shrink(self, config: PreTrainedConfig) -> PreTrainedConfig:
        config_class = type(config)
        model_type = config.model_type
        usual = _usual(config_class)
        overrides = OVERRIDES.get(model_type, {})
        kept = KEEP.get(model_type, ())
        values: dict[str, Any] = {}
        for field in fields(config_class):
            value = vars(config).get(field.name)  # getattr refuses what may differ from layer to layer
            if isinstance(value, PreTrainedConfig):
                values[field.name] = self.shrink(_without_timm(value))
            elif field.name in overrides or field.name in kept:
                continue
            else:
                start = value if usual is None or value != vars(usual).get(field.name) else _written(field)
                values[field.name] = self._reduced(field.name, start)
        values = {name: value for name, value in values.items() if value is not MISSING}
        _cut_per_layer_lists(values, config)
        _agree(values, config)
        return config_class(**{**values, **overrides})

    def _reduced(self, name: str, value: Any) -> Any:
        if isinstance(value, bool) or value is MISSING:
            return value
        if isinstance(value, int):
            return self._token(value) if _TOKENS.fullmatch(name) else _smaller(name, value)
        if isinstance(value, list | tuple) and value and all(type(item) is int for item in value):
            return self._reduced_list(name, list(value))
        return value

    def _reduced_list(self, name: str, value: list[int]) -> list[int]:
        if _TOKENS.fullmatch(name):
            return [self._token(item) for item in value]
        if _INDEX_LISTS.fullmatch(name):
            return list(range(len(value)))
        if _WIDTH_LISTS.fullmatch(name):
            return [max(4, item * _WIDTH // max(value)) for item in value]
        if name in ("depths", "num_block_repeats", "stage_num_blocks", "block_sizes"):
            return [min(item, _LAYERS) for item in value]
        return value

    def _token(self, value: int) -> int:
        if value < _VOCABULARY - 100:
            return value
        return self._tokens.setdefault(value, _VOCABULARY - 1 - len(self._tokens))


def _without_timm(config: PreTrainedConfig) -> PreTrainedConfig:
    """The ResNet of transformers in place of a backbone from a package that is not installed."""
    if config.model_type != "timm_backbone" or find_spec("timm") is not None:
        return config
    stages = [f"stage{index + 1}" for index in range(4)]
    wanted = len(vars(config).get("_out_indices") or vars(config).get("out_indices") or (3,))
    return CONFIG_MAPPING["resnet"](out_features=stages[-min(wanted, len(stages)) :])


def _usual(config_class: type[PreTrainedConfig]) -> PreTrainedConfig | None:
    """The configuration with nothing said, to tell what was said from what was derived."""
    if config_class.model_type in PARTS:
        return None
    return config_class()


def _written(field: Field[Any]) -> Any:
    """The default as the class writes it, so that what is derived from other fields is derived anew."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def _smaller(name: str, value: int) -> int:
    for pattern, size in _PATTERNS:
        if pattern.fullmatch(name):
            return min(value, size)
    return value


def _cut_per_layer_lists(values: dict[str, Any], config: PreTrainedConfig) -> None:
    """Cut lists that say one thing for each layer, such as layer_types, to the layers that are left."""
    for count in COUNTS:
        before, after = vars(config).get(count), values.get(count)
        if isinstance(before, int) and isinstance(after, int) and after < before:
            for name, value in values.items():
                if isinstance(value, list | tuple) and len(value) == before:
                    values[name] = list(value[:after])


def _agree(values: dict[str, Any], config: PreTrainedConfig) -> None:
    """Make sizes fit each other where one follows from another."""
    indices = [len(value) for name, value in values.items() if isinstance(value, list) and _INDEX_LISTS.fullmatch(name)]
    for name in COUNTS:
        if isinstance(values.get(name), int) and indices:
            values[name] = max(values[name], *indices)
    if "head_dim" in values and values["head_dim"] is None and isinstance(values.get("num_attention_heads"), int):
        values["head_dim"] = values.get("hidden_size", _WIDTH) // values["num_attention_heads"]
    if _has_as_many_key_value_heads(values, config):
        values["num_key_value_heads"] = values["num_attention_heads"]
    if "vocab_size" in values and values["vocab_size"] is None:
        values["vocab_size"] = _VOCABULARY
    heads = values.get("num_heads")
    if isinstance(heads, list) and isinstance(values.get("embed_dim"), int):
        values["embed_dim"] = 8 * heads[0]
        if isinstance(values.get("window_size"), int):
            values["window_size"] = 2  # the last stage is only a few patches wide
    patch, image = _first_int(values.get("patch_size")), values.get("image_size")
    if isinstance(image, int):
        values["image_size"] = min(image, 4 * patch if patch and patch >= _LARGE_PATCH else _SMALL_IMAGE)
    if isinstance(image, list | tuple) and image:
        values["image_size"] = [
            min(side, 4 * patch if patch and patch >= _LARGE_PATCH else _SMALL_IMAGE) for side in image
        ]


def _has_as_many_key_value_heads(values: dict[str, Any], config: PreTrainedConfig) -> bool:
    heads, shared = vars(config).get("num_attention_heads"), vars(config).get("num_key_value_heads")
    named = "num_key_value_heads" in values and isinstance(values.get("num_attention_heads"), int)
    return named and (values["num_key_value_heads"] is None or heads == shared)


def _first_int(value: Any) -> int | None:
    if isinstance(value, Iterable):
        value = next(iter(value), None)
    return value if isinstance(value, int) else None
