"""More modules as people write them: branches on two sizes, loops by a size, chains of convolutions, windows."""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from tests.formula.derive.branching import Made, Twofold
from tests.formula.derive.handwritten import Case, with_picture, with_tokens


class OddTail(Twofold):
    """The last position on its own where the length is odd."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] % 2:
            return torch.cat((self.narrow(x[:, :-1]), self.narrow(x[:, -1:])), dim=1)
        return self.wide(x)


class Segments(nn.Module):
    """Attention between the means of segments of 64; nothing where there is no whole one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = x.shape[1] // 64
        x = self.mix(x)
        if whole < 2:
            return x
        means = x[:, : 64 * whole].unflatten(1, (whole, 64)).mean(dim=2)
        return torch.cat((x, torch.softmax(means @ means.transpose(1, 2), -1) @ means), dim=1)


class CrossAttention(nn.Module):
    """Two sequences of independent lengths; the shorter one asks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > memory.shape[1]:
            x, memory = memory, x
        return torch.softmax(self.query(x) @ self.key(memory).transpose(1, 2), dim=-1) @ memory


class SingleSample(Twofold):
    """A batch of one takes a shortcut, a large batch is halved."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 1:
            return self.narrow(x[0])
        if x.shape[0] >= 32:
            return torch.cat([self.wide(part) for part in x.chunk(2)])
        return self.wide(x)


class LargestEighth(nn.Module):
    """Attends to the largest eighth of the positions, at least one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score, self.mix = nn.Linear(width, 1), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = torch.topk(self.score(x).squeeze(-1), max(1, x.shape[1] // 8), dim=1).indices
        return self.mix(torch.gather(x, 1, chosen[..., None].expand(-1, -1, x.shape[2])))


class Clamped(nn.Module):
    """A window of 8 to 40 positions: a quarter of the length inside these limits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        window = min(max(x.shape[1] // 4, 8), 40)
        return self.mix(x[:, -window:]) @ x[:, :window].transpose(1, 2)


class LayerPerWidth(nn.Module):
    """As many rounds as the width has eights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.rounds = max(1, width // 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.rounds):
            x = torch.relu(self.mix(x))
        return x


class Pyramid(nn.Module):
    """Halves the length until it is below 8: a loop whose tensors shrink."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.shape[1] >= 8:
            x = x[:, : x.shape[1] // 2 * 2]
            x = self.mix(x.unflatten(1, (-1, 2)).flatten(2))
        return x


class TwoModuli(Twofold):
    """Length and width decide together."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(x) if x.shape[1] % 4 == 0 and x.shape[2] % 3 == 0 else self.wide(x)


class Causal(nn.Module):
    """A mask of positions inside a window of 24, built by comparison."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = torch.arange(x.shape[1])
        hidden = (place[:, None] < place) | (place[:, None] - place >= 24)
        scores = (self.mix(x) @ x.transpose(1, 2)).masked_fill(hidden, float("-inf"))
        return torch.softmax(scores, dim=-1) @ x


class Repeated(nn.Module):
    """Cumulative sums and products along both axes, and a sort."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cumsum(self.mix(x), dim=1)
        return torch.cumprod(torch.sort(x, dim=2).values, dim=2)


class Ladder(nn.Module):
    """Strides 2, 3 and 2 with dilations, no padding in between: three rounded quotients inside each other."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(3, channels, 10, stride=5), nn.GELU(), nn.Conv1d(channels, channels, 3, stride=2),
            nn.Conv1d(channels, channels, 3, stride=2, dilation=2, padding=1), nn.Conv1d(channels, channels, 2, 2),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Unet(nn.Module):
    """Down twice, up twice, with the skipped maps cut to the same size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.start = nn.Conv2d(3, channels, 3, padding=1)
        self.down = nn.ModuleList(nn.Conv2d(channels, channels, 3, stride=2, padding=1) for _ in range(2))
        self.up = nn.ModuleList(nn.ConvTranspose2d(channels, channels, 2, stride=2) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = [self.start(x)]
        for layer in self.down:
            maps.append(layer(maps[-1]))
        x = maps.pop()
        for layer in self.up:
            skipped = maps.pop()
            x = layer(x)[..., : skipped.shape[2], : skipped.shape[3]] + skipped
        return x


class PadToSquare(nn.Module):
    """Pads a picture to a square, the larger side decides."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = max(x.shape[2], x.shape[3])
        return self.mix(functional.pad(x, (0, side - x.shape[3], 0, side - x.shape[2])))


class ShiftedWindows(nn.Module):
    """Windows of 7 by 7 in a padded picture, as Swin cuts them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Linear(3, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.mix(x.permute(0, 2, 3, 1))
        batch, height, width, channels = x.shape
        x = functional.pad(x, (0, 0, 0, -width % 7, 0, -height % 7))
        rows, columns = x.shape[1] // 7, x.shape[2] // 7
        if min(height, width) > 7:
            x = torch.roll(x, (-3, -3), dims=(1, 2))
        x = x.view(batch, rows, 7, columns, 7, channels).transpose(2, 3).reshape(-1, 49, channels)
        return torch.softmax(x @ x.transpose(1, 2), dim=-1) @ x


class Downscaled(nn.Module):
    """Interpolated to half its sides and to a quarter, then joined at the larger size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.mix(x)
        half = functional.interpolate(x, scale_factor=0.5, mode="bilinear")
        quarter = functional.interpolate(half, scale_factor=0.5, mode="nearest")
        return half + functional.interpolate(quarter, size=half.shape[2:], mode="nearest")


class Portrait(nn.Module):
    """A picture that is higher than wide is turned."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, channels, (3, 1), padding=(1, 0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[2] > x.shape[3]:
            x = x.transpose(2, 3)
        return self.mix(x)


def _crossing(sizes: Mapping[str, int]) -> Made:
    width = sizes["hidden_size"]
    x, memory = (torch.zeros(sizes["B"], sizes[name], width) for name in ("S", "T"))
    return CrossAttention(width), (x, memory)


def _wave(sizes: Mapping[str, int]) -> Made:
    return Ladder(sizes["channels"]), (torch.zeros(sizes["B"], 3, 100 + sizes["S"]),)


BRANCHES: Mapping[str, Case] = {
    **{
        kind.__name__: with_tokens(kind)
        for kind in (
            OddTail, Segments, SingleSample, LargestEighth, Clamped, LayerPerWidth, Pyramid, TwoModuli, Causal,
            Repeated,
        )
    },
    **{
        kind.__name__: with_picture(kind) for kind in (Unet, PadToSquare, ShiftedWindows, Downscaled, Portrait)
    },
    "CrossAttention": (_crossing, ("B", "S", "T", "hidden_size")),
    "Ladder": (_wave, ("B", "S", "channels")),
}  # fmt: skip
