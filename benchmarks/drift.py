"""Drift of known kind -> the verdict of `check --drift`: many layers, one source, an amplifier, or none.

    python benchmarks/drift.py [--depths 6 12 24] [--architectures residual transformer convolution chain bert llama]

Each case is a model and a planted backend (`Rounding`) that rounds the results of some functions to few bits. The table
has the kind that was planted and the kind that was found; the exit code is 1 when one differs.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode, resolve_name

from torchstone.backends.eager import Eager
from torchstone.backends.protocol import Args, Kwargs, Run
from torchstone.capture.capture_model import capture
from torchstone.check.child.drift import measure
from torchstone.check.child.model import LoadedModel, set_model
from torchstone.check.child.precision import smallest_precise_set
from torchstone.check.drift import classify, layer_rows, with_precise_set
from torchstone.record.check import Drift

WIDTH, WIDER, TOKENS = 32, 80, 12
FACTOR = 9.0  # of the amplifier
SPEC = f"{Path(__file__).resolve()}::Rounding"


# --- The planted backend ---


class Rounding(Eager):
    """Eager that rounds the results of some functions to a number of bits."""

    name = "rounding"

    def __init__(self, *, bits: int = 8, functions: tuple[str, ...] = (), size: int = 0) -> None:
        self.bits = bits
        self.functions = functions  # names such as linear; none: nothing is rounded
        self.size = size  # only calls with a tensor that has a dimension of this size; 0: all calls

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:  # noqa: ARG002 - the protocol
        """Nothing to compile."""

        def run(*args: Any, **kwargs: Any) -> Any:
            with torch.no_grad(), _RoundingMode(self.bits, self.functions, self.size):
                return module(*args, **kwargs)

        return run


class _RoundingMode(TorchFunctionMode):
    """Rounds while it is entered."""

    def __init__(self, bits: int, functions: tuple[str, ...], size: int) -> None:
        super().__init__()
        self._bits, self._functions, self._size = bits, functions, size

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function, and round what it gives."""
        result = func(*args, **(kwargs or {}))
        name = (resolve_name(func) or "").rpartition(".")[2].strip("_")
        tensors = [one for one in (*args, *(kwargs or {}).values()) if isinstance(one, Tensor)]
        meant = not self._size or any(self._size in one.shape for one in tensors)
        if name in self._functions and meant and isinstance(result, Tensor) and result.is_floating_point():
            mantissa, exponent = torch.frexp(result)
            return torch.ldexp(torch.round(mantissa * 2**self._bits) / 2**self._bits, exponent)
        return result


# --- Models ---


class Residual(nn.Module):
    """A feed-forward layer."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """One call."""
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Attention(nn.Module):
    """Attention of one head, and a feed-forward layer."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = Residual(inner)

    def forward(self, x: Tensor) -> Tensor:
        """One call."""
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        weights = functional.softmax(q @ k.transpose(-1, -2) / WIDTH**0.5, -1)
        return self.feed(x + self.out(weights @ v))


class Convolution(nn.Module):
    """Two convolutions."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(WIDTH, inner, 3, padding=1), nn.Conv1d(inner, WIDTH, 3, padding=1)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """One call."""
        inner = functional.relu(self.first(x.transpose(1, 2)))
        return functional.relu(x + self.norm(self.second(inner)).transpose(1, 2))


class Chain(nn.Module):
    """Without a residual: a layer's error is passed on by the next one only.

    It has no bias either: a bias that is added after values have cancelled makes them large again.
    """

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, inner, bias=False), nn.Linear(inner, WIDTH, bias=False)
        nn.init.orthogonal_(self.up.weight)
        nn.init.orthogonal_(self.down.weight)

    def forward(self, x: Tensor) -> Tensor:
        """One call."""
        return self.down(self.up(x)) + 0.1 * torch.sin(x)


class Cancelling(nn.Module):
    """A layer whose values cancel: most of what it returned for the example inputs is taken away, the error stays."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.nominal = torch.zeros(())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """One layer."""
        result = self.layer(*args, **kwargs)
        if isinstance(result, tuple):
            return (result[0] - self.nominal, *result[1:])
        return result - self.nominal

    def take_away(self, run: Callable[[], Any]) -> None:
        """Run the model once and keep what the layer returns, but for a small part."""
        kept = []
        hook = self.layer.register_forward_hook(
            lambda *call: kept.append(call[-1][0] if isinstance(call[-1], tuple) else call[-1])
        )
        with torch.no_grad():
            run()
        hook.remove()
        self.nominal = kept[0] * (1 - 1 / FACTOR)


class Stack(nn.Module):
    """Layers, and a linear one at the end."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """One call."""
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


BLOCKS: dict[str, Callable[[int], nn.Module]] = {
    "residual": Residual, "transformer": Attention, "convolution": Convolution, "chain": Chain,
}  # fmt: skip
ALL = ("linear", "conv1d", "add", "radd", "gelu", "relu", "softmax", "matmul")


def transformers_model(architecture: str, depth: int) -> tuple[nn.Module, nn.ModuleList, dict[str, Any]]:
    """A model of transformers with random weights, its layers and its inputs."""
    import transformers

    sizes = {"hidden_size": WIDTH, "num_hidden_layers": depth, "num_attention_heads": 4, "vocab_size": 99}
    ids = torch.randint(0, 99, (2, TOKENS))
    if architecture == "bert":
        config = transformers.BertConfig(**sizes, intermediate_size=2 * WIDTH, initializer_range=0.1)
        bert = transformers.BertModel(config)
        return bert, bert.encoder.layer, {"input_ids": ids}
    config = transformers.LlamaConfig(
        **sizes, intermediate_size=2 * WIDTH, num_key_value_heads=2, initializer_range=0.1, use_cache=False
    )
    llama = transformers.LlamaForCausalLM(config)
    return llama, llama.model.layers, {"input_ids": ids}


def widen(layer: nn.Module) -> None:
    """Give the feed-forward part of one layer of transformers another width."""
    for module in list(layer.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and 2 * WIDTH in child.weight.shape:
                sizes = [WIDER if size == 2 * WIDTH else size for size in child.weight.shape]
                setattr(module, name, nn.Linear(sizes[1], sizes[0], bias=child.bias is not None))


def case(architecture: str, depth: int, kind: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """A model, its arguments, and the options of the backend."""
    torch.manual_seed(depth)
    functions = ALL if kind in ("none", "amplifier") else ("linear", "conv1d")
    bits = 23 if kind == "none" else 8  # of 24 that float32 has: noise that any other implementation may have
    options: dict[str, Any] = {"bits": bits, "functions": functions, "size": WIDER if kind == "single source" else 0}
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    at = depth // 2
    if architecture in BLOCKS:
        widths = [WIDER if kind == "single source" and place == at else 2 * WIDTH for place in range(depth)]
        stack = Stack([BLOCKS[architecture](width) for width in widths])
        model: nn.Module = stack
        layers, args = stack.layers, (torch.randn(2, TOKENS, WIDTH),)
    else:
        model, layers, kwargs = transformers_model(architecture, depth)
        if kind == "single source":
            widen(layers[at])
    model.eval()
    if kind == "amplifier":
        cancelling = layers[3 * depth // 4] = Cancelling(layers[3 * depth // 4])
        cancelling.take_away(lambda: model(*args, **kwargs))
    return model, args, kwargs, options


def found_drift(architecture: str, depth: int, kind: str, *, with_set: bool) -> Drift:
    """What is found for a case."""
    model, args, kwargs, options = case(architecture, depth, kind)
    set_model(LoadedModel(model, args, kwargs, {}))
    trace = capture(model, (args, kwargs), "cpu", reuse=False)
    paths = [trace.modules[trace.module_calls.modules[row]].path for row in layer_rows(trace)]
    payload: dict[str, Any] = {"backend": {"spec": SPEC, "options": options}, "profile": "default", "layers": paths}
    answer = measure(payload)
    found = classify(answer["layers"], answer["final"], observed=answer["observed"])
    if not with_set or kind == "none":
        return found
    return with_precise_set(
        found, smallest_precise_set(payload | {"sources": list(found.culprits), "deadline_s": 600.0})
    )


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=[6, 12, 24])
    parser.add_argument("--architectures", nargs="+", default=[*BLOCKS, "bert", "llama"])
    parser.add_argument("--no-set", action="store_true", help="do not search for operators to keep in higher precision")
    given = parser.parse_args()
    wrong = cases = 0
    print("| architecture | depth | planted | found | s | verdict |\n|---|---:|---|---|---:|---|")
    for architecture in given.architectures:
        for depth in given.depths:
            for kind in ("none", "uniform", "single source", "amplifier"):
                began_s = time.perf_counter()
                found = found_drift(architecture, depth, kind, with_set=not given.no_set)
                cases, wrong = cases + 1, wrong + (found.kind.value != kind)
                took_s = time.perf_counter() - began_s
                row = f"| {architecture} | {depth} | {kind} | {found.kind.value} | {took_s:.1f} | {found.verdict} |"
                print(row, flush=True)
    print(f"\n{cases - wrong} of {cases} classified as planted")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
