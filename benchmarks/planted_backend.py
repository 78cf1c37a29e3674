"""A dynamo backend with a planted fault, and models to plant it in; imports torch and the backend protocol only.

A check and torch's minifier load this file in each of their processes, so it imports nothing that they do not need.
"""

import os
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from torchstone.backends import Unsupported
from torchstone.backends.torch_compile import AotEager, compiled

ATEN = {
    "linear": "aten.linear.default", "softmax": "aten.softmax.int", "matmul": "aten.matmul.default",
    "conv2d": "aten.conv2d.default", "add": "aten.add.Tensor", "mul": "aten.mul.Tensor", "gelu": "aten.gelu.default",
    "relu": "aten.relu.default", "layer_norm": "aten.layer_norm.default", "silu": "aten.silu.default",
    "embedding": "aten.embedding.default", "rsqrt": "aten.rsqrt.default", "tanh": "aten.tanh.default",
    "batch_norm": "aten.batch_norm.default", "addmm": "aten.addmm.default", "transpose": "aten.transpose.int",
    "scaled_dot_product_attention": "aten.scaled_dot_product_attention.default", "cat": "aten.cat.default",
    "max_pool2d": "aten.max_pool2d.default", "mean": "aten.mean.dim",
}  # fmt: skip

# --- The backend ---


class Planted(AotEager):
    """aot_eager's place with eager's numbers, but for one planted fault."""

    name = "planted"

    def __init__(
        self, *, chain: str, how: str = "wrong", size: int = 0, above: float = 0.0, argument: int = -1
    ) -> None:
        super().__init__()
        self.chain = chain.split("+")  # op, or ops that follow each other, each read by the next alone
        self.how = how
        self.size = size  # only where the result has this size
        self.above = above  # only where the result, or an argument, has a value above this
        self.argument = argument

    def compile(self, module: nn.Module, args: Any, kwargs: Any) -> Any:  # noqa: ARG002 - the protocol
        """Compile when first called."""
        return compiled(module, backend=self.receive)

    def receive(self, graph: fx.GraphModule, _example: Sequence[object]) -> Any:
        """What dynamo hands over, with the fault in it."""
        for node in [node for node in graph.graph.nodes if self._is_at(node, len(self.chain) - 1)]:
            if self.how == "named":
                op = ATEN[self.chain[-1]]
                msg = f"no lowering for {op}"
                raise Unsupported(msg, ops=(op,))
            if self.how == "unnamed":
                msg = "the scheduler gave up"
                raise RuntimeError(msg)
            with graph.graph.inserting_after(node):
                more = (node.args[self.argument],) if self.argument >= 0 else ()
                bad = graph.graph.call_function(self._apply, (node, *more))
            node.replace_all_uses_with(bad, delete_user_cb=lambda user, bad=bad: user is not bad)
        graph.recompile()
        return graph.forward

    def _is_at(self, node: fx.Node, place: int) -> bool:
        """Whether the chain up to this place ends at a node."""
        if node.op not in ("call_function", "call_method") or name_of(node) != self.chain[place]:
            return False
        if place == 0:
            return True
        before = [one for one in node.all_input_nodes if len(one.users) == 1]
        return any(self._is_at(one, place - 1) for one in before)

    def _apply(self, result: Tensor, argument: Tensor | None = None) -> Tensor:
        seen = result if argument is None else argument
        if (self.size and self.size not in result.shape) or (self.above and float(seen.abs().max()) <= self.above):
            return result
        match self.how:
            case "wrong":
                return result * 1.5
            case "slightly":
                return result * (1 + 2e-3)
            case "nan":
                return torch.where(torch.arange(result.shape[-1]) == 0, torch.nan, result)
            case "raise":
                msg = "device fault"
                raise RuntimeError(msg)
            case "crash":
                os.kill(os.getpid(), 11)
            case "hang":
                time.sleep(10_000)
            case "memory":
                held = [torch.ones(1 << 24) for _ in range(1 << 20)]
                return result + len(held)
            case _:
                pass
        return result


def name_of(node: fx.Node) -> str:
    """linear, add, softmax."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


# --- Architectures: three of our own beside tiny:llama, tiny:bert and tiny:vit ---


class Block(nn.Module):
    """A transformer block with matmul and softmax of its own."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102 - a forward
        h = self.first(x)
        scores = torch.matmul(self.q(h), self.k(h).transpose(-1, -2)) / 4
        x = x + self.o(torch.matmul(torch.softmax(scores, -1), self.v(h)))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Encoder(nn.Module):
    """Four blocks; the weights of `up` in block 2 are larger than all others."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(32, 50)
        with torch.no_grad():
            self.blocks[2].get_parameter("up.weight").mul_(3)

    def forward(self, ids: Tensor) -> Tensor:  # noqa: D102 - a forward
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Residual(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norm, self.other = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102 - a forward
        return functional.relu(x + self.other(self.two(functional.relu(self.norm(self.one(x))))))


class ResNet(nn.Module):
    """Two stages of different width."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.narrow = nn.Sequential(Residual(8), Residual(8))
        self.wider = nn.Conv2d(8, 16, 1, stride=2)
        self.wide = nn.Sequential(Residual(16), Residual(16))
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102 - a forward
        x = self.wide(self.wider(self.narrow(self.stem(x))))
        return self.head(x.mean((2, 3)))


def load_mlp() -> nn.Module:
    """Plain nn."""
    torch.manual_seed(0)
    layers = [nn.Linear(16, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8)]
    return nn.Sequential(*layers).eval()


def mlp_inputs() -> tuple[Tensor, ...]:
    """A batch of vectors."""
    return (torch.randn(4, 16, generator=torch.Generator().manual_seed(1)),)


def load_encoder() -> nn.Module:
    """Four transformer blocks."""
    torch.manual_seed(0)
    return Encoder().eval()


def encoder_inputs() -> tuple[Tensor, ...]:
    """Token ids."""
    return (torch.arange(24).reshape(2, 12),)


def load_resnet() -> nn.Module:
    """Convolutions."""
    torch.manual_seed(0)
    return ResNet().eval()


def resnet_inputs() -> tuple[Tensor, ...]:
    """An image."""
    return (torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(1)),)


OWN = ("mlp", "encoder", "resnet")
