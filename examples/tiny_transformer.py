"""A small language model in plain PyTorch to try torchstone on: torchstone inspect tiny_transformer.py::load_model."""

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) -> the same."""
        batch, tokens, width = x.shape
        query, key, value = (
            part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed = self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        assert isinstance(mixed, Tensor)  # noqa: S101 - for the type checker
        return mixed


class Block(nn.Module):
    """Attention, then a feed-forward network, each on top of what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) -> the same."""
        x = x + self.attention(self.norm1(x))
        mixed = x + self.feed_forward(self.norm2(x))
        assert isinstance(mixed, Tensor)  # noqa: S101 - for the type checker
        return mixed


class TinyTransformer(nn.Module):
    """Token ids in, logits out."""

    def __init__(self, vocabulary: int = 1000, width: int = 128, heads: int = 4, layers: int = 6) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, tokens) -> (batch, tokens, vocabulary)."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        assert isinstance(logits, Tensor)  # noqa: S101 - for the type checker
        return logits


def load_model() -> nn.Module:
    """The model, with weights that are the same every time."""
    torch.manual_seed(0)
    return TinyTransformer().eval()


def get_inputs() -> Tensor:
    """Two sentences of 64 tokens."""
    return torch.arange(128).reshape(2, 64)
