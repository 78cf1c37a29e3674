"""Caches that a decode step can start from beside the one that a model makes by itself."""

from collections.abc import Sequence
from types import MethodType
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedConfig, StaticCache
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from torchstone.errors import ModelInputsError

_EXPAND = "expand_kv"  # of all attention modules in transformers that keep compressed rows instead of keys and values
_OWNER = "torchstone_layer"
_ABSORBS = "torchstone_absorbs"
_FUSED = "sdpa"
_SIZES = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank")


def empty_cache(kind: str, config: PreTrainedConfig, name: str, size: int) -> Cache | None:
    """A cache for the prefill to fill, with room for `size` tokens where it is static; None: as the model makes it.

    `name` is that of the model, for errors.
    """
    if kind == "static":
        cache = StaticCache(config=config, max_cache_len=size)
        # The rows of the encoder are as many as they will ever be, so that they need no room to grow.
        return EncoderDecoderCache(cache, DynamicCache(config=config)) if config.is_encoder_decoder else cache
    return _expanded_cache(config, name) if kind == "expanded" else None


def _expanded_cache(config: PreTrainedConfig, name: str) -> Cache:
    cache = DynamicCache(config=config)
    known = [type(layer) is DynamicLayer for layer in cache.layers]
    if not any(known):
        found = ", ".join(sorted({type(layer).__name__ for layer in cache.layers}))
        msg = f"{name} has cache layers ({found}) for which no expanded form is known; drop --cache expanded"
        raise ModelInputsError(msg)
    cache.layers = [ExpandedLayer() if plain else layer for plain, layer in zip(known, cache.layers, strict=True)]
    return cache


class ExpandedLayer(DynamicLayer):
    """Keys and values of all heads, where the attention of transformers keeps the compressed rows they come from."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: object, **_kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Give the new rows back as they are: the attention expands them, then they are kept."""
        setattr(key_states, _OWNER, self)
        return key_states, value_states

    def keep(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append what was expanded."""
        return super().update(keys, values)


def set_lengths(cache: object, tokens: int) -> None:
    """Give the counters of a static cache that was filled without values the value they would have.

    Some models read them back to place the new token.
    """
    for layer in _own_layers(cache):
        counter = getattr(layer, "cumulative_length", None)
        if isinstance(counter, torch.Tensor) and counter.is_meta:
            layer.cumulative_length = torch.tensor(tokens, dtype=counter.dtype)


def empty_closed_windows(cache: object) -> None:
    """Drop all tokens of layers with a window of one, which sees the new token alone.

    Transformers keeps the last n - 1 tokens of a window of n by a slice, which is the whole sequence where n is 1.
    """
    for layer in _own_layers(cache):
        if type(layer) is DynamicSlidingWindowLayer and layer.sliding_window == 1 and layer.is_initialized:
            layer.keys, layer.values = layer.keys[..., :0, :], layer.values[..., :0, :]


def _own_layers(cache: object) -> list[Any]:
    """The layers that keep the tokens of a decoder itself."""
    parts = (cache, getattr(cache, "self_attention_cache", None))
    return [layer for part in parts for layer in getattr(part, "layers", ())]


def is_filled(cache: object) -> bool:
    """Whether every expanded layer of a cache was given keys and values; other caches are not looked into."""
    layers = getattr(cache, "layers", ())
    return all(layer.is_initialized for layer in layers if isinstance(layer, ExpandedLayer))


def choose_latent_form(model: nn.Module, kind: str | None) -> None:
    """Let latent attention run on a cache of this kind: as its code does, expanded or absorbed.

    The model may have been used with another kind before. Raises ModelInputsError for a model that cannot.
    """
    latent = [module for module in model.modules() if callable(getattr(type(module), _EXPAND, None))]
    for module in latent:
        vars(module).pop(_EXPAND, None)
        vars(module).pop(_ABSORBS, None)
    if kind == "expanded":
        _expand_latents(model, latent)
    elif kind == "absorbed":
        _absorb_latents(model, latent)


def _expand_latents(model: nn.Module, latent: Sequence[nn.Module]) -> None:
    """Let attention over compressed rows keep what it expands."""
    if not latent:
        msg = f"{type(model).__name__} has no latent attention, whose cache could be expanded; drop --cache expanded"
        raise ModelInputsError(msg)
    for module in latent:
        setattr(module, _EXPAND, MethodType(_expand_and_keep, module))


def _absorb_latents(model: nn.Module, latent: Sequence[nn.Module]) -> None:
    """Let attention over compressed rows multiply queries and results by what would expand the rows, not the rows.

    The scores are those of the compressed rows themselves, which all heads share: the same result from other products,
    and the form in which models are served.
    """
    name = type(model).__name__
    if not latent:
        msg = f"{name} has no latent attention, which could be absorbed; drop --cache absorbed"
        raise ModelInputsError(msg)
    for module in latent:
        weights: Any = getattr(module, "kv_b_proj", None)
        known = isinstance(weights, nn.Linear) and weights.bias is None
        if not known or not all(isinstance(getattr(module, size, None), int) for size in _SIZES):
            msg = f"{type(module).__name__} of {name} expands its rows in a way of its own; drop --cache absorbed"
            raise ModelInputsError(msg)
        if getattr(module.config, "_attn_implementation", None) != _FUSED:
            msg = f"{name} does not use torch's fused attention, which is exchanged for this; drop --cache absorbed"
            raise ModelInputsError(msg)
        setattr(module, _EXPAND, MethodType(_rows_as_they_are, module))
        setattr(module, _ABSORBS, True)
    if ALL_ATTENTION_FUNCTIONS[_FUSED] is not _attention:
        ALL_ATTENTION_FUNCTIONS[_FUSED] = _attention  # for other modules it is what it was


def _rows_as_they_are(
    _module: nn.Module, latents: torch.Tensor, rotary: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat((latents, rotary), dim=-1), latents


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **settings: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Torch's fused attention, absorbed where the module asks for it."""
    if not getattr(module, _ABSORBS, False):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    plain, rotary, own, rank = (int(getattr(module, size)) for size in _SIZES)
    batch, heads, rows, _ = query.shape
    weights: Any = module.kv_b_proj
    for_keys, for_values = weights.weight.view(heads, plain + own, rank).split([plain, own], dim=1)
    unplaced, placed = query.split([plain, rotary], dim=-1)
    asked = torch.cat((_each_head(unplaced, for_keys), placed), dim=-1).reshape(batch, 1, heads * rows, -1)
    tokens = key.shape[2]
    if attention_mask is None and rows > 1:
        attention_mask = torch.ones(rows, tokens, dtype=torch.bool, device=query.device).tril(tokens - rows)
    if attention_mask is not None:
        whole = attention_mask[..., :tokens].expand(batch, heads, rows, tokens)
        attention_mask = whole.reshape(batch, 1, heads * rows, tokens)
    found = nn.functional.scaled_dot_product_attention(
        asked, key, value, attn_mask=attention_mask, scale=settings.get("scaling")
    )
    result = _each_head(found.view(batch, heads, rows, rank), for_values.transpose(1, 2))
    return result.transpose(1, 2).contiguous(), None


def _each_head(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Rows of each head times the matrix of that head, which is read once for all sequences."""
    batch, heads, count, size = rows.shape
    product = torch.bmm(rows.transpose(0, 1).reshape(heads, batch * count, size), weights)
    return product.view(heads, batch, count, -1).transpose(0, 1)


def _expand_and_keep(
    module: nn.Module, latents: torch.Tensor, rotary: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    keys, values = getattr(type(module), _EXPAND)(module, latents, rotary)
    layer = getattr(latents, _OWNER, None)
    return (keys, values) if layer is None else layer.keep(keys, values)
