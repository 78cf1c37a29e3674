"""Small nets that are not from transformers: torch's own encoder with padding, recurrent cells, a U-Net, an MLP."""

from typing import Any

import torch
from torch import Tensor, nn


class _Encoder(nn.Module):
    """torch's own encoder, with a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor, src_key_padding_mask: Tensor) -> Tensor:
        return self.head(self.layers(x, src_key_padding_mask=src_key_padding_mask))


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.cell = nn.ModuleList([nn.GRUCell(32, 32), nn.LSTMCell(32, 32)])
        self.head = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 5))

    def forward(self, ids: Tensor) -> Tensor:
        states = torch.zeros(3, ids.shape[0], 32)
        state, hidden, memory = (one.to(self.embed.weight.dtype) for one in states)
        for place in range(ids.shape[1]):
            state = self.cell[0](self.embed(ids[:, place]), state)
            hidden, memory = self.cell[1](state, (hidden, memory))
        return self.head(hidden)


class _Down(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(inner, outer, 3, 2, 1), nn.GroupNorm(4, outer)
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(outer, outer, 1), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.silu(self.norm(self.conv(x)))
        return x * self.squeeze(x)


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_Down(3, 16), _Down(16, 32)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.bn = nn.BatchNorm2d(16)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down[0](x)
        second = self.down[1](first)
        x = torch.relu(self.bn(self.up[0](second) + first))
        return self.out(self.up[1](x))


def small_net(name: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A net by its name, with arguments."""
    if name == "encoder":
        padding = torch.arange(12).expand(2, 12) >= torch.tensor([[12], [7]])
        return _Encoder(), (torch.randn(2, 12, 64),), {"src_key_padding_mask": padding}
    if name == "recurrent":
        return _Recurrent(), (torch.randint(50, (4, 7)),), {}
    if name == "unet":
        unet = _UNet()
        unet.bn.running_mean = torch.randn(16) / 4
        unet.bn.running_var = torch.rand(16) + 0.5
        return unet, (torch.randn(2, 3, 32, 32),), {}
    net = nn.Sequential(*(nn.Sequential(nn.Linear(48, 48), nn.LayerNorm(48), nn.GELU()) for _ in range(4)))
    return net, (torch.randn(8, 48),), {}


OWN = ("encoder", "recurrent", "unet", "mlp")
