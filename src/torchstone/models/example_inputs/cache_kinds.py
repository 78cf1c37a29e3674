"""Caches that a decode step can start from beside the one that a model makes by itself."""

from types import MethodType

import torch
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedConfig, StaticCache
from transformers.cache_utils import Cache, DynamicLayer

from torchstone.errors import ModelInputsError

_EXPAND = "expand_kv"  # of all attention modules in transformers that keep compressed rows instead of keys and values
_OWNER = "torchstone_layer"


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
    for part in (cache, getattr(cache, "self_attention_cache", None)):
        for layer in getattr(part, "layers", ()):
            counter = getattr(layer, "cumulative_length", None)
            if isinstance(counter, torch.Tensor) and counter.is_meta:
                layer.cumulative_length = torch.tensor(tokens, dtype=counter.dtype)


def is_filled(cache: object) -> bool:
    """Whether every expanded layer of a cache was given keys and values; other caches are not looked into."""
    layers = getattr(cache, "layers", ())
    return all(layer.is_initialized for layer in layers if isinstance(layer, ExpandedLayer))


def expand_latents(model: nn.Module) -> None:
    """Let attention over compressed rows keep what it expands; raises ModelInputsError for a model without such."""
    latent = [module for module in model.modules() if callable(getattr(type(module), _EXPAND, None))]
    if not latent:
        msg = f"{type(model).__name__} has no latent attention, whose cache could be expanded; drop --cache expanded"
        raise ModelInputsError(msg)
    for module in latent:
        setattr(module, _EXPAND, MethodType(_expand_and_keep, module))


def _expand_and_keep(
    module: nn.Module, latents: torch.Tensor, rotary: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    keys, values = getattr(type(module), _EXPAND)(module, latents, rotary)
    layer = getattr(latents, _OWNER, None)
    return (keys, values) if layer is None else layer.keep(keys, values)
