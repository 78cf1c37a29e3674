"""Builders: networks of layers that repeat, in many ways, and their traces."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.record.trace import Trace

WIDTH = 8


class Layer(nn.Module):
    """Two matmuls and a residual."""

    looks_at = slice(0)  # which of the states so far it gets beside the newest one
    part: int

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor, *_: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Pointwise(nn.Module):
    """Nothing ends a kernel: all layers are one."""

    looks_at = slice(0)

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor, *_: Tensor) -> Tensor:
        return torch.tanh(x) * self.scale


class WithConstant(Layer):
    """Makes a tensor of its own in every call."""

    def forward(self, x: Tensor, *_: Tensor) -> Tensor:
        return super().forward(x) * torch.tensor([0.5])


class LooksBack(Layer):
    """Uses what the layer before the one before it made."""

    looks_at = slice(-2, None)

    def forward(self, x: Tensor, *states: Tensor) -> Tensor:
        return super().forward(x) + states[-2] if len(states) > 1 else super().forward(x) + x


class InPlace(Layer):
    """Writes over what the layer before made."""

    def forward(self, x: Tensor, *_: Tensor) -> Tensor:
        return x.add_(self.down(torch.relu(self.up(x))))


class HandsOnAView(Layer):
    """Gives a view of what it made, which the next one views again."""

    def forward(self, x: Tensor, *_: Tensor) -> Tensor:
        return super().forward(x.view(2, WIDTH)).view(1, 2, WIDTH)


class Writing(Layer):
    """Written-out attention with a mask that all layers share."""

    looks_at = slice(1)

    def forward(self, x: Tensor, *states: Tensor) -> Tensor:
        scores = x @ x.transpose(-1, -2) + states[0] @ states[0].transpose(-1, -2)
        return super().forward(torch.softmax(scores, dim=-1) @ x)


class Tabled(Layer):
    """Makes something of a table that is there before all layers, so that one kernel has a part in each of them."""

    looks_at = slice(1)

    def forward(self, x: Tensor, *states: Tensor) -> Tensor:
        return super().forward(x) * torch.where(states[0] > 0, self.down.bias, torch.tensor(0.5))


class Unweighted(nn.Module):
    """What has no weights may run again outside: none of its memory is used there."""

    looks_at = slice(0)

    def forward(self, x: Tensor, *_: Tensor) -> Tensor:
        return x @ x.transpose(-1, -2) @ x


class Nested(nn.Module):
    """Equal layers inside a layer."""

    looks_at = slice(0)

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.inner = nn.Sequential(*(Layer() for _ in range(layers)))

    def forward(self, x: Tensor, *_: Tensor) -> Tensor:
        return torch.tanh(self.inner(x))


KINDS: tuple[Callable[[], nn.Module], ...] = (
    Layer, Pointwise, WithConstant, LooksBack, InPlace, HandsOnAView, Writing, Tabled, Unweighted, Nested
)  # fmt: skip


class Stack(nn.Module):
    """Layers one after another, with what the model gives back or looks at afterwards."""

    def __init__(self, *layers: nn.Module, gives: str = "last", before: int = 1) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.gives = gives
        self.before = before

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        for _ in range(self.before):
            x = torch.sin(x @ x.transpose(-1, -2)) @ x
        x = x + 1
        states = [x]
        for layer in self.layers:
            x = layer(x, *states[layer.looks_at])  # type: ignore[index]
            states.append(x)
        if self.gives == "all states":
            return tuple(states)
        return torch.stack(states[1:]).sum() if self.gives == "sum of all" else x.exp()


class Woven(Stack):
    """Calls ops of its own between the layers."""

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        states = [x + 1]
        for layer in self.layers:
            made = layer(states[-1], *states[layer.looks_at])  # type: ignore[index]
            states.append(torch.tanh(made * 2) + states[-1])
        return tuple(states) if self.gives == "all states" else states[-1].exp()


def traced(model: nn.Module) -> Trace:
    trace = capture(model, (torch.ones(2, WIDTH),))
    assert trace.failure is None, trace.failure
    return trace


def stack_of(kind: Callable[[], nn.Module], layers: int, **options: object) -> Trace:
    """The trace of equal layers."""
    return traced(Stack(*(kind() for _ in range(layers)), **options))  # type: ignore[arg-type]
