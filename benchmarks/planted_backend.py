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
    "max_pool2d": "aten.max_pool2d.default", "mean": "aten.mean.dim", "chunk": "aten.chunk.default",
    "topk": "aten.topk.default", "sigmoid": "aten.sigmoid.default", "relu_": "aten.relu_.default",
    "add_": "aten.add_.Tensor", "argmax": "aten.argmax.default", "permute": "aten.permute.default",
    "conv_transpose2d": "aten.conv_transpose2d.input", "nan_to_num": "aten.nan_to_num.default", "gt": "aten.gt.Scalar",
    "to": "aten._to_copy.default", "stack": "aten.stack.default", "mul_": "aten.mul_.Tensor",
}  # fmt: skip

# --- The backend ---


class Planted(AotEager):
    """aot_eager's place with eager's numbers, but for one planted fault."""

    name = "planted"

    def __init__(  # noqa: PLR0913 - one option for each way in which a fault may be limited
        self, *, chain: str, how: str = "wrong", size: int = 0, above: float = 0.0, argument: int = -1, when: str = "",
        output: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.chain = chain.split("+")  # op, or ops that follow each other, each read by the next alone
        self.how = how
        self.size = size  # only where the result has this size
        self.above = above  # only where the result, or an argument, has a value above this
        self.argument = argument
        self.when = when  # only where the argument is laid out otherwise, its last size odd, its first size 1; or again
        self.output = output  # of an op with several
        self.calls = 0

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
        self.calls = 0

        def run(*inputs: Any) -> Any:
            self.calls += 1
            return graph.forward(*inputs)

        return run

    def _is_at(self, node: fx.Node, place: int) -> bool:
        """Whether the chain up to this place ends at a node."""
        if node.op not in ("call_function", "call_method") or name_of(node) != self.chain[place]:
            return False
        if place == 0:
            return True
        before = [one for one in node.all_input_nodes if len(one.users) == 1]
        return any(self._is_at(one, place - 1) for one in before)

    def _applies(self, result: Tensor, seen: Tensor) -> bool:
        if (self.size and self.size not in result.shape) or (self.above and float(seen.abs().max()) <= self.above):
            return False
        match self.when:
            case "not contiguous":
                return not seen.is_contiguous()
            case "odd":
                return seen.shape[-1] % 2 == 1
            case "batch of 1":
                return seen.shape[0] == 1
            case "again":
                return self.calls > 1
            case _:
                return True

    def _apply(self, result: Any, argument: Tensor | None = None) -> Any:
        if isinstance(result, (tuple, list)):
            bad = [self._bad(one, argument) if number == self.output else one for number, one in enumerate(result)]
            return type(result)(bad) if type(result) in (tuple, list) else tuple(bad)
        return self._bad(result, argument)

    def _bad(self, result: Tensor, argument: Tensor | None) -> Tensor:
        seen = result if argument is None else argument
        if not self._applies(result, seen):
            return result
        match self.how:
            case "wrong" | "slightly":
                return result * (1.5 if self.how == "wrong" else 1 + 2e-3)
            case "in place":
                return result.mul_(1.5)
            case "off by one":
                return torch.where(result > 0, result - 1, result)
            case "flipped":
                return torch.where(torch.arange(result.shape[-1]) == 0, ~result, result)
            case "truncated":
                return (result.view(torch.int16) & -16).view(result.dtype)
            case "nan lost":
                return torch.where(seen.isnan(), torch.ones_like(result), result)
            case "nan":
                return torch.where(torch.arange(result.shape[-1]) == 0, torch.nan, result)
            case "varies":
                return result * (1 + int.from_bytes(os.urandom(1), "big") / 256)
            case _:
                return self._ended(result)

    def _ended(self, result: Tensor) -> Tensor:
        match self.how:
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


# --- Architectures of the second set: a network of depthwise convolutions, a recurrent one, a U-Net, a running mean ---


class Mixer(nn.Module):
    """Depthwise convolution, layer norm over channels, and a wide layer, with a scaled way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.deep = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102 - a forward
        h = self.norm(self.deep(x).permute(0, 2, 3, 1))
        h = self.scale * self.down(functional.gelu(self.up(h)))
        return x + h.permute(0, 3, 1, 2)


class ConvNet(nn.Module):
    """Stem, two stages and a head, as in image models."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 2, stride=2)
        self.first = nn.Sequential(Mixer(8), Mixer(8))
        self.between = nn.Conv2d(8, 12, 2, stride=2)
        self.second = nn.Sequential(Mixer(12), Mixer(12))
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102 - a forward
        x = self.second(self.between(self.first(self.stem(x))))
        return self.head(self.norm(x.mean((2, 3))))


class Cell(nn.Module):
    """A gated recurrent cell."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_input, self.from_state = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:  # noqa: D102 - a forward
        reset, update, new = self.from_input(x).chunk(3, -1)
        reset_state, update_state, new_state = self.from_state(state).chunk(3, -1)
        keep = torch.sigmoid(update + update_state)
        fresh = torch.tanh(new + torch.sigmoid(reset + reset_state) * new_state)
        return keep * state + (1 - keep) * fresh


class Recurrent(nn.Module):
    """A loop over a cell, the best words of each step, and what they mean."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.words = Cell(16), nn.Embedding(30, 16)
        self.head = nn.Linear(16, 30)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102 - a forward
        state = torch.zeros_like(x[:, 0])
        states = []
        for step in range(x.shape[1]):
            state = self.cell(x[:, step].to(torch.bfloat16).float(), state)
            states.append(state)
        scores = self.head(torch.stack(states, 1))
        values, _ = scores.topk(4, -1)
        chosen = self.words(scores.argmax(-1))
        return values.softmax(-1), torch.where(chosen > 0, chosen, chosen.nan_to_num())


class UNet(nn.Module):
    """Down, up, and a way across; activations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.three, self.last = nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(8, 2, 1)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102 - a forward
        across = self.one(x).relu_()
        deep = self.two(functional.max_pool2d(across, 2)).relu_()
        up = functional.pad(self.up(deep), (0, across.shape[-1] % 2, 0, across.shape[-2] % 2))
        joined = self.three(torch.cat([up, across], 1)).relu_()
        joined += across
        return self.last(joined)


class RunningMean(nn.Module):
    """Keeps a running mean, masks what is unknown, and gives both."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.register_buffer("mean", torch.ones(16))
        self.body = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102 - a forward
        known = x.nan_to_num()
        self.mean.mul_(0.9).add_(known.mean(0), alpha=0.1)
        return self.body(known - self.mean), known > 0


def load_convnet() -> nn.Module:
    """Depthwise convolutions."""
    torch.manual_seed(0)
    return ConvNet().eval()


def convnet_inputs() -> tuple[Tensor, ...]:
    """One image of odd size after the stem."""
    return (torch.randn(1, 3, 22, 22, generator=torch.Generator().manual_seed(1)),)


def load_recurrent() -> nn.Module:
    """A loop."""
    torch.manual_seed(0)
    return Recurrent().eval()


def recurrent_inputs() -> tuple[Tensor, ...]:
    """Sequences."""
    return (torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1)),)


def load_unet() -> nn.Module:
    """Down and up."""
    torch.manual_seed(0)
    return UNet().eval()


def unet_inputs() -> tuple[Tensor, ...]:
    """An image of odd size."""
    return (torch.randn(2, 3, 13, 13, generator=torch.Generator().manual_seed(1)),)


def load_running() -> nn.Module:
    """State."""
    torch.manual_seed(0)
    return RunningMean().eval()


def running_inputs() -> tuple[Tensor, ...]:
    """Vectors with some values missing."""
    values = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    return (values.masked_fill(values > 1.2, torch.nan),)


OWN = ("mlp", "encoder", "resnet", "convnet", "recurrent", "unet", "running")
