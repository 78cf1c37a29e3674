"""Modules as people write them: pools, padded windows, stacks, recurrences, transforms. One function of sizes each."""

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional

from tests.formula.derive.branching import Made, Twofold

Make = Callable[[Mapping[str, int]], Made]
Case = tuple[Make, tuple[str, ...]]


class Window(nn.Module):
    """Attention over at most the last 16 tokens: min(S, 16)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.keys = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = min(x.shape[1], 16)
        return torch.softmax(x @ self.keys(x[:, -seen:]).transpose(1, 2), dim=-1)


class PaddedWindows(nn.Module):
    """Pads the length to a multiple of 8 and attends inside each window."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        x = functional.pad(x, (0, 0, 0, (8 - length % 8) % 8))
        windows = x.view(batch, -1, 8, width)
        weights = torch.softmax(windows @ windows.transpose(2, 3), dim=-1)
        return self.project((weights @ windows).view(batch, -1, width)[:, :length])


class Chunks(nn.Module):
    """A loop over chunks of 32 tokens, the last one shorter."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.mix(part) for part in x.split(32, dim=1)], dim=1)


class TwoThresholds(Twofold):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] <= 4:
            return self.narrow(x)
        return self.wide(x) if x.shape[1] < 100 else self.narrow(torch.relu(x))


class PartialRotary(nn.Module):
    """Rotates the first quarter of every head."""

    def __init__(self, heads: int, head_width: int) -> None:
        super().__init__()
        self.heads, self.rotated = heads, head_width // 4
        self.project = nn.Linear(heads * head_width, heads * head_width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q = self.project(x).view(batch, length, self.heads, -1).transpose(1, 2)
        turned, kept = q[..., : self.rotated], q[..., self.rotated :]
        angles = torch.arange(length)[:, None] * torch.ones(self.rotated)
        turned = turned * angles.cos() + turned.neg() * angles.sin()
        return torch.cat((turned, kept), dim=-1).transpose(1, 2).reshape(batch, length, width)


class Pools(nn.Module):
    """Three poolings of stride 2 in a row."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1), nn.MaxPool2d(2),
            nn.Conv2d(channels, channels, 3, padding=1), nn.MaxPool2d(2),
            nn.Conv2d(channels, channels, 3, padding=1), nn.AvgPool2d(2),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Overlapping(nn.Module):
    """Padded poolings with overlap, as at the beginning of ResNet, and strided convolutions behind them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 7, stride=2, padding=3)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.down = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.down(self.pool(torch.relu(self.stem(x)))))


class Adaptive(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d((7, 7))
        self.mix = nn.Conv2d(3, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(self.mix(x)).flatten(1)


class Upsampled(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.interpolate(self.mix(x), scale_factor=2, mode="nearest")
        return functional.interpolate(x, size=(32, 32), mode="bilinear")


class Normalized(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, 4 * channels, 3, padding=1)
        self.norm = nn.GroupNorm(4, 4 * channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.silu(self.norm(self.conv(x)))


class Spectrum(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(torch.fft.fft(self.mix(x), dim=-1), dim=-2).real


class Stack(nn.Module):
    """Several equal layers in a list."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


class Scan(nn.Module):
    """A loop over the length that keeps every state: a list as long as the sequence is stacked."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, states = x[:, 0], []
        for step in range(x.shape[1]):
            state = torch.tanh(self.mix(state) + x[:, step])
            states.append(state)
        return torch.stack(states, dim=1)


class Doubling(nn.Module):
    """A scan in rounds: the number of rounds grows with the logarithm of the length."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step = 1
        while step < x.shape[1]:
            x = x + self.mix(torch.roll(x, step, dims=1))
            step *= 2
        return x


class Thresholds(nn.Module):
    """Another width of the hidden layer for short, middle and long sequences, with limits that are attributes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.short, self.long = 24, 96
        self.layers = nn.ModuleList(nn.Linear(width, width * factor) for factor in (1, 2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        which = 0 if length < self.short else 1 if length <= self.long else 2
        return self.layers[which](x)


class EvenBatch(nn.Module):
    """Pairs of a batch where it is even, single ones where it is odd."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pair, self.single = nn.Linear(2 * width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] % 2 == 0:
            return self.pair(torch.cat((x[::2], x[1::2]), dim=-1))
        return self.single(x)


class PaddedTo64(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(functional.pad(x, (0, 0, 0, -x.shape[1] % 64)))


class NestedLoops(nn.Module):
    """Every pair of positions, one op at a time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.mix(x)
        total = torch.zeros_like(x[:, 0])
        for one in range(min(x.shape[1], 12)):
            for other in range(one):
                total = total + x[:, one] * x[:, other]
        return total


class EverySecondStep(nn.Module):
    """A loop over every second position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x[:, 0]
        for step in range(0, x.shape[1], 2):
            state = torch.relu(self.mix(state)) + x[:, step]
        return state


class RunningSums(nn.Module):
    """A sum over all positions so far, at each position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.mix(x[:, : step + 1].sum(dim=1)) for step in range(min(x.shape[1], 16))], dim=1)


class Summed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(self.mix(x), dim=1) / torch.arange(1, x.shape[1] + 1)[:, None]


class OddStrides(nn.Module):
    """Strides of 3 and 5, a dilation of 2 and unequal paddings."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, (3, 5), stride=(3, 2), padding=(1, 2))
        self.second = nn.Conv2d(channels, channels, 3, stride=(1, 2), padding=2, dilation=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(self.second(functional.gelu(self.first(x))))


class CeilPools(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, channels, 1)
        self.pools = nn.Sequential(nn.MaxPool2d(3, 2, ceil_mode=True), nn.AvgPool2d(2, ceil_mode=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pools(self.mix(x))


class Scaled(nn.Module):
    """Interpolation by factors that are not whole."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(self.mix(x), scale_factor=1.5, mode="bilinear")


class Patches(nn.Module):
    """Unfolded patches of 4 with a step of 3, mixed."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Linear(3 * 16, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(functional.unfold(x, 4, stride=3).transpose(1, 2))


class Shuffled(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, 4 * channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.pixel_shuffle(self.mix(x), 2)


class AdaptiveMax(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.adaptive_max_pool2d(self.mix(x), (5, 3))


class GlobalPool(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix, self.head = nn.Conv2d(3, channels, 3, padding=1), nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.mix(x), 1).flatten(1))


class Einsums(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, 4, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = torch.einsum("bsd,dhe->bhse", x, self.weight)
        return torch.einsum("bhse,bhte->bhst", q, q).softmax(dim=-1)


class Routed(nn.Module):
    """Two of eight experts for each token, all experts computed and weighted."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 8)
        self.experts = nn.Parameter(torch.zeros(8, width, 2 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = torch.topk(self.gate(x).softmax(dim=-1), 2, dim=-1)
        dense = torch.zeros(*x.shape[:-1], 8).scatter(-1, chosen, weights)
        return torch.einsum("bsd,edf,bse->bsf", x, self.experts, dense)


class LocalBlocks(nn.Module):
    """Attention inside blocks of 16, a rest of the sequence on its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = x.shape[1] // 16 * 16
        parts = []
        if whole:
            blocks = x[:, :whole].reshape(-1, 16, x.shape[2])
            parts.append((torch.softmax(blocks @ blocks.transpose(1, 2), -1) @ blocks).reshape(x.shape[0], whole, -1))
        if whole < x.shape[1]:
            parts.append(x[:, whole:])
        return self.mix(torch.cat(parts, dim=1))


class Squared(nn.Module):
    """A matrix of all positions, halved where there are many."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] * x.shape[1] > 4096:
            x = x[:, ::2]
        return self.mix(x) @ x.transpose(1, 2)


class DigitSum(nn.Module):
    """As often as there are ones in the binary length: no formula of sizes is right."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(int(x.shape[1]).bit_count()):
            x = self.mix(x)
        return x


class SecretLength(nn.Module):
    """One length among thousands costs more."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(self.mix(x)) if int(x.shape[1]) == 777 else self.mix(x)


class Gated(nn.Module):
    """The product of batch and length decides."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.small, self.large = nn.Linear(width, width), nn.Linear(width, 2 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.small(x) if x.shape[0] * x.shape[1] < 512 else self.large(x)


def with_tokens(kind: Callable[[int], nn.Module]) -> Case:
    def make(sizes: Mapping[str, int]) -> Made:
        width = sizes["hidden_size"]
        return kind(width), (torch.zeros(sizes["B"], sizes["S"], width),)

    return make, ("B", "S", "hidden_size")


def with_picture(kind: Callable[[int], nn.Module]) -> Case:
    def make(sizes: Mapping[str, int]) -> Made:
        return kind(sizes["channels"]), (torch.zeros(sizes["B"], 3, sizes["H"], sizes["W"]),)

    return make, ("B", "H", "W", "channels")


def _recurrent(kind: type[nn.LSTM] | type[nn.GRU], *, layers: int, both_ways: bool) -> Case:
    def make(sizes: Mapping[str, int]) -> Made:
        module = kind(sizes["input_size"], sizes["hidden_size"], layers, batch_first=True, bidirectional=both_ways)
        return module, (torch.zeros(sizes["B"], sizes["S"], sizes["input_size"]),)

    return make, ("B", "S", "input_size", "hidden_size")


def _rotary(sizes: Mapping[str, int]) -> Made:
    heads, width = sizes["heads"], sizes["hidden_size"]
    return PartialRotary(heads, width // heads), (torch.zeros(sizes["B"], sizes["S"], width),)


def _stack(sizes: Mapping[str, int]) -> Made:
    width = sizes["hidden_size"]
    return Stack(width, sizes["n_layers"]), (torch.zeros(sizes["B"], sizes["S"], width),)


def _volume(sizes: Mapping[str, int]) -> Made:
    return Normalized(sizes["channels"]), (torch.zeros(sizes["B"], 3, sizes["D"], sizes["H"], sizes["W"]),)


def _transposed(sizes: Mapping[str, int]) -> Made:
    module = nn.ConvTranspose2d(sizes["c_in"], sizes["c_out"], 4, stride=2, padding=1)
    return module, (torch.zeros(sizes["B"], sizes["c_in"], sizes["H"], sizes["W"]),)


def _attention(sizes: Mapping[str, int]) -> Made:
    x = torch.zeros(sizes["B"], sizes["S"], sizes["embed_dim"])
    return nn.MultiheadAttention(sizes["embed_dim"], sizes["num_heads"], batch_first=True), (x, x, x)


def _encoder(sizes: Mapping[str, int]) -> Made:
    layer = nn.TransformerEncoderLayer(sizes["d_model"], sizes["nhead"], sizes["ff"], batch_first=True)
    return nn.TransformerEncoder(layer, sizes["num_layers"]), (torch.zeros(sizes["B"], sizes["S"], sizes["d_model"]),)


def _projected(sizes: Mapping[str, int]) -> Made:
    module = nn.LSTM(
        sizes["input_size"], 2 * sizes["hidden_size"], 2, batch_first=True, bidirectional=True,
        proj_size=sizes["hidden_size"],
    )  # fmt: skip
    return module, (torch.zeros(sizes["B"], sizes["S"], sizes["input_size"]),)


def _with_output_padding(sizes: Mapping[str, int]) -> Made:
    module = nn.ConvTranspose2d(sizes["c_in"], sizes["c_out"], 3, stride=3, padding=1, output_padding=2)
    return module, (torch.zeros(sizes["B"], sizes["c_in"], sizes["H"], sizes["W"]),)


def _dilated(sizes: Mapping[str, int]) -> Made:
    module = nn.Sequential(nn.Conv1d(sizes["c_in"], sizes["c_out"], 5, stride=3, padding=3, dilation=4), nn.ReLU())
    return module, (torch.zeros(sizes["B"], sizes["c_in"], sizes["S"]),)


def _grouped(sizes: Mapping[str, int]) -> Made:
    channels = 4 * sizes["channels"]
    module = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, groups=channels), nn.GroupNorm(4, channels))
    return module, (torch.zeros(sizes["B"], channels, sizes["H"], sizes["W"]),)


ADVERSARIAL: Mapping[str, Case] = {
    **{
        kind.__name__: with_tokens(kind)
        for kind in (
            Thresholds, EvenBatch, PaddedTo64, NestedLoops, EverySecondStep, RunningSums, Summed, Einsums, Routed,
            LocalBlocks, Squared, DigitSum, SecretLength, Gated,
        )
    },
    **{
        kind.__name__: with_picture(kind)
        for kind in (OddStrides, CeilPools, Scaled, Patches, Shuffled, AdaptiveMax, GlobalPool)
    },
    "LSTM with projection": (_projected, ("B", "S", "input_size", "hidden_size")),
    "stacked GRU": _recurrent(nn.GRU, layers=2, both_ways=True),
    "ConvTranspose2d with output_padding": (_with_output_padding, ("B", "H", "W", "c_in", "c_out")),
    "dilated Conv1d": (_dilated, ("B", "S", "c_in", "c_out")),
    "Sequential of groups": (_grouped, ("B", "H", "W", "channels")),
}  # fmt: skip
HANDWRITTEN: Mapping[str, Case] = {
    **ADVERSARIAL,
    "Window": with_tokens(Window),
    "PaddedWindows": with_tokens(PaddedWindows),
    "Chunks": with_tokens(Chunks),
    "TwoThresholds": with_tokens(TwoThresholds),
    "Spectrum": with_tokens(Spectrum),
    "Doubling": with_tokens(Doubling),
    "Scan": with_tokens(Scan),
    "PartialRotary": (_rotary, ("B", "S", "hidden_size", "heads")),
    "Stack": (_stack, ("B", "S", "hidden_size", "n_layers")),
    "Pools": with_picture(Pools),
    "Overlapping": with_picture(Overlapping),
    "Adaptive": with_picture(Adaptive),
    "Upsampled": with_picture(Upsampled),
    "Normalized": (_volume, ("B", "D", "H", "W", "channels")),
    "ConvTranspose2d": (_transposed, ("B", "H", "W", "c_in", "c_out")),
    "LSTM": _recurrent(nn.LSTM, layers=2, both_ways=True),
    "GRU": _recurrent(nn.GRU, layers=3, both_ways=False),
    "MultiheadAttention": (_attention, ("B", "S", "embed_dim", "num_heads")),
    "TransformerEncoder": (_encoder, ("B", "S", "d_model", "nhead", "ff", "num_layers")),
}
