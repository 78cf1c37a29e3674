"""Which positions of a batch are padding, from the attention mask among a model's inputs.

What a model computes for padding tokens is read by nobody, and correct implementations differ there: a row of attention
in which everything is masked is NaN in one and uniform in another. So those positions are reported and do not decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

_REAL = ("attention_mask",)  # 1 is a token, 0 is padding
_PADDING = ("key_padding_mask", "src_key_padding_mask", "padding_mask")  # True is padding
_BATCH_AND_TOKENS = 2  # dimensions


def tokens_of(named: Mapping[str, object]) -> Tensor | None:
    """True for tokens and False for padding, [batch, tokens]; None where nothing is padded, or nothing says so."""
    for name, value in named.items():
        last = name.replace("/", ".").rpartition(".")[2]
        if last not in (*_REAL, *_PADDING) or not isinstance(value, Tensor) or value.dim() != _BATCH_AND_TOKENS:
            continue
        flags = value.detach().cpu()
        if flags.is_floating_point() or not bool(((flags == 0) | (flags == 1)).all()):
            continue
        tokens = flags == 0 if last in _PADDING else flags != 0
        return tokens if bool(tokens.any()) and not bool(tokens.all()) else None
    return None


def counted_positions(tokens: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    """Which leading positions of a tensor are tokens, for broadcasting; None where its shape does not show them."""
    if tokens is None:
        return None
    batch, length = tokens.shape
    sizes = list(shape)
    if sizes[:2] == [batch, length]:
        return tokens
    if len(sizes) > _BATCH_AND_TOKENS and sizes[0] == batch and sizes[2] == length:
        return tokens.unsqueeze(1).expand(batch, sizes[1], length)
    if sizes[:1] == [batch * length] and batch > 1:
        return tokens.reshape(-1)
    return None


def selected(tensor: Tensor, positions: Tensor) -> Tensor:
    """The rows of the counted positions."""
    return tensor[positions] if tensor.layout == torch.strided else tensor
