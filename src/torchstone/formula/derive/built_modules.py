"""Classes of torch.nn, each built alone at chosen sizes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from random import Random
from typing import Any

import torch
from torch import nn

from torchstone.formula.derive.plans import Point, nth_prime

Values = Mapping[str, int]

_FITTED, _HELD_OUT = 6, 2
_LEVELS = 8
_SMALLEST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a class is built and called at chosen sizes."""

    sizes: tuple[str, ...]
    build: Callable[..., nn.Module]  # with the values and one choice of each switch
    given: Callable[[Values], torch.Tensor]
    switches: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)
    times: int = 1  # how often the only input is passed

    def points(self) -> list[Point]:
        """Points at coprime sizes."""
        return [Point(self._values(number), number >= _FITTED) for number in range(_FITTED + _HELD_OUT)]

    def random_points(self, numbers: Random, count: int) -> list[Point]:
        """Points anywhere in the range, for a check that no fit has seen."""
        return [Point({name: self._random(name, numbers) for name in self.sizes}, held_out=True) for _ in range(count)]

    def _random(self, name: str, numbers: Random) -> int:
        few = _FEW.get(name)
        return numbers.choice(few) if few else numbers.randint(1 if name in ("n", "batch") else 12, 60)

    def choices(self) -> list[dict[str, bool]]:
        """All combinations of switches."""
        return [dict(zip(self.switches, each, strict=True)) for each in product(*self.switches.values())]

    def make(self, values: Values, choice: Mapping[str, bool], dtype: str) -> tuple[nn.Module, tuple[Any, ...]]:
        """The module on meta, and the arguments of a call."""
        with torch.device("meta"):
            module = self.build(values, **choice).to(getattr(torch, dtype)).eval()
        with torch.device("meta"):
            given = self.given(values)
        if given.is_floating_point():
            given = given.to(getattr(torch, dtype))
        return module, (given,) * self.times

    def _values(self, number: int) -> dict[str, int]:
        values = {}
        for place, name in enumerate(self.sizes):
            level = (number + number // _LEVELS * (place + 1)) % _LEVELS
            few = _FEW.get(name)
            values[name] = (
                few[(number + place) % len(few)] if few else nth_prime(place * _LEVELS + level, smallest=_SMALLEST)
            )
        return values


_FEW = {
    "kernel": (3, 5, 2), "kernel_w": (2, 3, 5), "stride": (2, 1, 3), "stride_w": (1, 3, 2), "padding": (1, 0, 2),
    "padding_w": (0, 2, 1), "dilation": (1, 2, 1), "dilation_w": (2, 1, 1), "groups": (3, 2, 5),
    "repeats": (1, 2, 3), "heads": (7, 8, 11, 4, 13, 16, 5, 14),
}  # fmt: skip
_YES_AND_NO = (True, False)


def _floats(*names: str) -> Callable[[Values], torch.Tensor]:
    return lambda values: torch.zeros([values[name] for name in names])


def _channels(values: Values) -> tuple[int, int]:
    return values["groups"] * values["in_part"], values["groups"] * values["out_part"]


def _conv1d(values: Values, *, bias: bool) -> nn.Module:
    inside, outside = _channels(values)
    return nn.Conv1d(inside, outside, values["kernel"], values["stride"], values["padding"], values["dilation"],
                     values["groups"], bias=bias)  # fmt: skip


def _conv2d(values: Values, *, bias: bool) -> nn.Module:
    inside, outside = _channels(values)
    kernel, stride, padding, dilation = (
        (values[name], values[f"{name}_w"]) for name in ("kernel", "stride", "padding", "dilation")
    )
    return nn.Conv2d(inside, outside, kernel, stride, padding, dilation, values["groups"], bias)


def _picture(*sides: str) -> Callable[[Values], torch.Tensor]:
    return lambda values: torch.zeros((values["batch"], _channels(values)[0], *(values[side] for side in sides)))


def _sequence(width: str) -> Callable[[Values], torch.Tensor]:
    return lambda values: torch.zeros((values["batch"], values["length"], values["heads"] * values[width]))


def _plain(name: str, _values: Values) -> nn.Module:
    module: nn.Module = getattr(nn, name)()
    return module


_CONVOLVED = ("in_part", "out_part", "batch", "groups", "kernel", "stride", "padding", "dilation")
RECIPES: Mapping[str, Recipe] = {
    "Linear": Recipe(
        sizes=("n", "inside", "outside"),
        build=lambda values, bias: nn.Linear(values["inside"], values["outside"], bias=bias),
        given=_floats("n", "inside"),
        switches={"bias": _YES_AND_NO},
    ),
    "Embedding": Recipe(
        sizes=("n", "rows", "width", "repeats"),
        build=lambda values: nn.Embedding(values["rows"], values["width"]),
        given=lambda values: torch.zeros((values["n"],), dtype=torch.int64).expand(values["repeats"], values["n"]),
    ),
    "LayerNorm": Recipe(
        sizes=("n", "width"),
        build=lambda values, elementwise_affine, bias: nn.LayerNorm(
            values["width"], elementwise_affine=elementwise_affine, bias=bias
        ),
        given=_floats("n", "width"),
        switches={"elementwise_affine": _YES_AND_NO, "bias": _YES_AND_NO},
    ),
    "RMSNorm": Recipe(
        sizes=("n", "width"),
        build=lambda values, elementwise_affine: nn.RMSNorm(values["width"], elementwise_affine=elementwise_affine),
        given=_floats("n", "width"),
        switches={"elementwise_affine": _YES_AND_NO},
    ),
    "Conv1d": Recipe(
        sizes=(*_CONVOLVED, "length"), build=_conv1d, given=_picture("length"), switches={"bias": _YES_AND_NO}
    ),
    "Conv2d": Recipe(
        sizes=(*_CONVOLVED, "height", "width", "kernel_w", "stride_w", "padding_w", "dilation_w"),
        build=_conv2d,
        given=_picture("height", "width"),
        switches={"bias": _YES_AND_NO},
    ),
    "BatchNorm2d": Recipe(
        sizes=("batch", "channels", "height", "width"),
        build=lambda values: nn.BatchNorm2d(values["channels"]),
        given=_floats("batch", "channels", "height", "width"),
    ),
    "MultiheadAttention": Recipe(
        sizes=("batch", "length", "heads", "head"),
        build=lambda values: nn.MultiheadAttention(values["heads"] * values["head"], values["heads"], batch_first=True),
        given=_sequence("head"),
        times=3,
    ),
    "TransformerEncoderLayer": Recipe(
        sizes=("batch", "length", "heads", "head", "inner"),
        build=lambda values: nn.TransformerEncoderLayer(
            values["heads"] * values["head"], values["heads"], values["inner"], batch_first=True
        ),
        given=_sequence("head"),
    ),
    **{
        name: Recipe(sizes=("n",), build=partial(_plain, name), given=_floats("n"))
        for name in ("ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "Dropout", "Identity")
    },
}
