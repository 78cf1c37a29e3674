"""Any transformers model type at tiny size: its default configuration with every size reduced alike.

Every width becomes the same number, so that a part which must fit another part still fits it.
"""

import re
from dataclasses import MISSING, Field, fields
from importlib.util import find_spec
from typing import Any

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.models.tiny_exceptions import ADDED, OVERRIDES, PARTS
from torchstone.models.tiny_fit import VOCABULARY, WIDTH, fit, is_index_list

_LAYERS = 2
_POSITIONS = 512
_PLAIN_TOKENS = VOCABULARY - 100  # ids below stay; special tokens above get the last ids of the small vocabulary

# The first pattern that fits a name decides; a number is never made larger.
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


def _part(model_type: str, values: dict[str, Any]) -> PreTrainedConfig:
    return CONFIG_MAPPING[model_type](**values)


class _Shrinker:
    """Reduces a tree of configurations; remembers which small id each special token got, since the parts share them."""

    def __init__(self) -> None:
        self._tokens: dict[int, int] = {}

    def shrink(self, config: PreTrainedConfig) -> PreTrainedConfig:
        config_class = type(config)
        overrides = OVERRIDES.get(config.model_type, {})
        usual = _usual(config_class)
        values: dict[str, Any] = {}
        for field in fields(config_class):
            value = vars(config).get(field.name)  # getattr refuses what may differ from layer to layer
            if isinstance(value, PreTrainedConfig):
                values[field.name] = self.shrink(_without_timm(value))
            else:
                is_usual = usual is not None and value == vars(usual).get(field.name)
                values[field.name] = self._reduced(field.name, _written(field) if is_usual else value)
        values = {name: value for name, value in values.items() if value is not MISSING}
        values.update(overrides)
        fit(values, config)
        return config_class(**{**values, **overrides, **ADDED.get(config.model_type, {})})

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
        if is_index_list(name):
            return list(range(len(value)))
        if _WIDTH_LISTS.fullmatch(name):
            return _narrower(value)
        if name in _DEPTH_LISTS:
            return [min(item, _LAYERS) for item in value]
        return value

    def _token(self, value: int) -> int:
        if value < _PLAIN_TOKENS:
            return value
        return self._tokens.setdefault(value, VOCABULARY - 1 - len(self._tokens))


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


def _narrower(widths: list[int]) -> list[int]:
    """Widths divided alike, so that heads and neighbouring parts still fit."""
    divisor = 1
    while max(widths) // (2 * divisor) >= WIDTH and all(width % (2 * divisor) == 0 for width in widths):
        divisor *= 2
    return [width // divisor for width in widths]
