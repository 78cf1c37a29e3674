# ruff: noqa: D102 - a forward pass is a forward pass
"""Image nets in which little repeats, written after the papers: most layers have a width of their own."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn


def _conv(inner: int, outer: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    pad = kernel // 2
    return nn.Sequential(nn.Conv2d(inner, outer, kernel, stride, pad, groups=groups, bias=False), nn.BatchNorm2d(outer))


class _Squeeze(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.down, self.norm, self.up = nn.Conv2d(width, inner, 1), nn.BatchNorm2d(inner), nn.Conv2d(inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.up(torch.relu(self.norm(self.down(x.mean((2, 3), keepdim=True)))))
        return x * scale.sigmoid()


class _RexBlock(nn.Module):
    """A linear bottleneck; the shortcut covers the channels that both ends have."""

    def __init__(self, inner: int, outer: int, expand: int, stride: int) -> None:
        super().__init__()
        wide = inner * expand
        self.expand = _conv(inner, wide, 1) if expand > 1 else nn.Identity()
        self.depth = _conv(wide, wide, 3, stride, groups=wide)
        self.squeeze = _Squeeze(wide, max(wide // 12, 1)) if expand > 1 else nn.Identity()
        self.project = _conv(wide, outer, 1)
        self.shortcut = inner if stride == 1 and inner <= outer else 0

    def forward(self, x: Tensor) -> Tensor:
        wide = nn.functional.silu(self.expand(x))
        out = self.project(nn.functional.relu6(self.squeeze(self.depth(wide))))
        if self.shortcut:
            return torch.cat([out[:, : self.shortcut] + x, out[:, self.shortcut :]], dim=1)
        return out


class RexNet(nn.Module):
    """Channels grow by a little with every block (ReXNet)."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.stem = _conv(3, round(32 * scale), 3, 2)
        strides = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1]
        blocks, inner = [], round(32 * scale)
        for place, stride in enumerate(strides):
            outer = round((16 + place * 164 / len(strides)) * scale)
            blocks.append(_RexBlock(inner, outer, 1 if place == 0 else 6, stride))
            inner = outer
        self.blocks = nn.Sequential(*blocks)
        self.head, self.classify = _conv(inner, round(1280 * scale), 1), nn.Linear(round(1280 * scale), 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(nn.functional.silu(self.stem(x)))
        return self.classify(nn.functional.silu(self.head(x)).mean((2, 3)))


class _Dense(nn.Module):
    def __init__(self, inner: int, growth: int) -> None:
        super().__init__()
        self.first, self.narrow = nn.BatchNorm2d(inner), nn.Conv2d(inner, 4 * growth, 1, bias=False)
        self.second, self.conv = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        x = self.narrow(torch.relu(self.first(torch.cat(features, 1))))
        return self.conv(torch.relu(self.second(x)))


class DenseNet(nn.Module):
    """Each layer reads all layers before it (DenseNet)."""

    def __init__(self, depths: tuple[int, ...], growth: int) -> None:
        super().__init__()
        width = 2 * growth
        self.stem = _conv(3, width, 7, 2)
        self.stages, self.shrink = nn.ModuleList(), nn.ModuleList()
        for depth in depths:
            self.stages.append(nn.ModuleList([_Dense(width + place * growth, growth) for place in range(depth)]))
            width = (width + depth * growth) // 2
            self.shrink.append(nn.Sequential(nn.BatchNorm2d(2 * width), nn.ReLU(), nn.Conv2d(2 * width, width, 1)))
        self.classify = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.stem(x)), 3, 2, 1)
        for stage, shrink in zip(self.stages, self.shrink, strict=True):
            features = [x]
            for place in range(len(stage)):  # type: ignore[arg-type]
                features.append(stage[place](features))  # type: ignore[index]
            x = nn.functional.avg_pool2d(shrink(torch.cat(features, 1)), 2)
        return self.classify(x.mean((2, 3)))


class _Factorised(nn.Module):
    """Attention of every channel with every other, beside a depthwise convolution as its position (CoaT)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm, self.qkv = heads, nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.position, self.out = nn.Conv2d(width, width, 3, padding=1, groups=width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, width, height, breadth = x.shape
        tokens = self.position(x).flatten(2).transpose(1, 2)
        q, k, v = (
            self.qkv(self.norm(tokens)).reshape(batch, -1, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        )
        mixed = q @ (k.softmax(dim=2).transpose(-2, -1) @ v)
        tokens = tokens + self.out(mixed.transpose(1, 2).reshape(batch, -1, width))
        tokens = tokens + self.mlp(tokens)
        return tokens.transpose(1, 2).reshape(batch, width, height, breadth)


class CoaT(nn.Module):
    """Four stages of factorised attention, each with its own width and size (CoaT)."""

    def __init__(self, widths: tuple[int, ...], depths: tuple[int, ...]) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        inner = 3
        for width, depth in zip(widths, depths, strict=True):
            stages += [nn.Conv2d(inner, width, 4 if inner == 3 else 2, 4 if inner == 3 else 2)]
            stages += [_Factorised(width, 8) for _ in range(depth)]
            inner = width
        self.stages, self.classify = nn.Sequential(*stages), nn.Linear(inner, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.stages(x).mean((2, 3)))


class MobileNet(nn.Module):
    """Inverted bottlenecks with the table of MobileNetV3 (large)."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        table = [(3, 16, 16, 1, 0), (3, 64, 24, 2, 0), (3, 72, 24, 1, 0), (5, 72, 40, 2, 1), (5, 120, 40, 1, 1),
                 (5, 120, 40, 1, 1), (3, 240, 80, 2, 0), (3, 200, 80, 1, 0), (3, 184, 80, 1, 0), (3, 184, 80, 1, 0),
                 (3, 480, 112, 1, 1), (3, 672, 112, 1, 1), (5, 672, 160, 2, 1), (5, 960, 160, 1, 1)]  # fmt: skip
        inner = round(16 * scale)
        layers: list[nn.Module] = [_conv(3, inner, 3, 2), nn.Hardswish()]
        for kernel, wide, outer, stride, squeeze in table:
            wide, outer = round(wide * scale), round(outer * scale)  # noqa: PLW2901
            layers += [_conv(inner, wide, 1), nn.Hardswish(), _conv(wide, wide, kernel, stride, groups=wide)]
            layers += [_Squeeze(wide, max(wide // 4, 1))] if squeeze else []
            layers += [nn.Hardswish(), _conv(wide, outer, 1)]
            inner = outer
        self.layers, self.classify = nn.Sequential(*layers), nn.Linear(inner, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.layers(x).mean((2, 3)))


class _Inception(nn.Module):
    def __init__(self, inner: int, outer: tuple[int, int, int, int]) -> None:
        super().__init__()
        a, b, c, d = outer
        self.one, self.three = (
            _conv(inner, a, 1),
            nn.Sequential(_conv(inner, b // 2, 1), nn.ReLU(), _conv(b // 2, b, 3)),
        )
        self.five = nn.Sequential(_conv(inner, max(c // 3, 1), 1), nn.ReLU(), _conv(max(c // 3, 1), c, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), _conv(inner, d, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1))


class Inception(nn.Module):
    """GoogLeNet's table of branches."""

    def __init__(self) -> None:
        super().__init__()
        table = [(64, 128, 32, 32), (128, 192, 96, 64), (192, 208, 48, 64), (160, 224, 64, 64), (128, 256, 64, 64),
                 (112, 288, 64, 64), (256, 320, 128, 128), (256, 320, 128, 128), (384, 384, 128, 128)]  # fmt: skip
        self.stem = nn.Sequential(_conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), _conv(64, 192, 3), nn.ReLU())
        inner, layers = 192, list[nn.Module]()
        for place, outer in enumerate(table):
            layers += [_Inception(inner, outer), *([nn.MaxPool2d(3, 2, 1)] if place in (1, 6) else [])]
            inner = sum(outer)
        self.layers, self.classify = nn.Sequential(*layers), nn.Linear(inner, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.layers(self.stem(x)).mean((2, 3)))


class ConvNet(nn.Module):
    """A small plain net, where starting costs more than running."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        pairs = zip((3, *widths), widths, strict=False)
        self.layers = nn.Sequential(*(nn.Sequential(_conv(a, b, 3, 2), nn.ReLU()) for a, b in pairs))
        self.classify = nn.Linear(widths[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.layers(x).mean((2, 3)))


NETS: dict[str, Callable[[], nn.Module]] = {
    **{f"rexnet {scale}": partial(RexNet, scale) for scale in (0.5, 1.0, 1.3, 1.5, 2.0, 3.0)},
    **{f"mobilenet {scale}": partial(MobileNet, scale) for scale in (0.35, 0.5, 0.75, 1.0, 1.4)},
    "densenet 121": partial(DenseNet, (6, 12, 24, 16), 32),
    "densenet 161": partial(DenseNet, (6, 12, 36, 24), 48),
    "densenet 169": partial(DenseNet, (6, 12, 32, 32), 32),
    "densenet 201": partial(DenseNet, (6, 12, 48, 32), 32),
    "coat tiny": partial(CoaT, (152, 152, 152, 152), (2, 2, 2, 2)),
    "coat mini": partial(CoaT, (152, 216, 216, 216), (2, 2, 2, 2)),
    "coat small": partial(CoaT, (152, 320, 320, 320), (2, 2, 2, 2)),
    "inception": Inception,
    "convnet 3": partial(ConvNet, (16, 32, 64)),
    "convnet 5": partial(ConvNet, (16, 32, 64, 96, 128)),
    "convnet 8": partial(ConvNet, (16, 24, 32, 48, 64, 80, 96, 112)),
}
