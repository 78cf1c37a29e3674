"""Predicted against measured time on this machine's CPU, for models small enough to run here.

The CPU is measured first, then each model runs for real: as a whole, and once more with a clock around every op. The
families of ops are compared held-out: the factor between measured and predicted time of a family comes from the other
models, and the error is what is left of it in the model itself. What a roofline leaves out: caches, kernels that do not
reach the peak, the time of Python between ops. Run it alone on the machine.

    python benchmarks/roofline_vs_measured.py [--rounds 3] [MODEL ...]
"""

import argparse
import math
import time
from collections import defaultdict
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.backends.interception import op_name
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.cpu_limits import measure_cpu
from torchstone.cost.registry import find_price
from torchstone.cost.roofline import hardware_toml, predict
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load
from torchstone.record.cost import CostTable, Prediction

MODELS = (
    "bert-base-uncased", "openai-community/gpt2", "HuggingFaceTB/SmolLM2-135M", "google/vit-base-patch16-224",
    "microsoft/resnet-50", "google-t5/t5-small",
)  # fmt: skip


def main() -> None:
    """Measure the CPU, then every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    given = parser.parse_args()
    hardware = measure_cpu()
    print(hardware_toml(hardware))
    print(f"{'model':<32} {'predicted':>10} {'measured':>10} {'measured / predicted':>21}")
    ratios = []
    families: dict[str, dict[str, tuple[float, float]]] = {}
    for name in given.models:
        model, inputs = load(name, options=InputOptions(seq_len=128), device="cpu")
        trace = capture(model, inputs)
        table = price(trace)
        prediction = predict(trace, table, hardware)
        predicted = prediction.total_s
        measured = best_of(model, inputs, given.rounds)
        families[name] = by_family(table, prediction, timed_by_family(model, inputs, given.rounds))
        ratios.append(measured / predicted)
        print(f"{name:<32} {predicted:>9.3f}s {measured:>9.3f}s {ratios[-1]:>20.2f}x")
    typical = math.exp(sum(map(math.log, ratios)) / len(ratios))
    spread = math.exp(sum(abs(math.log(ratio / typical)) for ratio in ratios) / len(ratios))
    print(f"\ngeometric mean {typical:.2f}x; after that factor a model is off by {spread:.2f}x on average")
    print_families(families)


class Clock(TorchDispatchMode):
    """Adds up the seconds of each family of ops."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = defaultdict(float)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an op and add its time to its family."""
        start = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        spent = time.perf_counter() - start
        entry = find_price(op_name(func))
        self.seconds[entry.kind.value if entry else "unpriced"] += spent
        return result


def timed_by_family(model: Any, inputs: Any, rounds: int) -> dict[str, float]:
    """Seconds of each family in its fastest round, after one to warm up."""
    best: dict[str, float] = {}
    with torch.no_grad():
        for round_number in range(rounds + 1):
            with Clock() as clock:
                model(*inputs.args, **inputs.kwargs)
            if round_number:
                best = {kind: min(spent, best.get(kind, math.inf)) for kind, spent in clock.seconds.items()}
    return best


def by_family(table: CostTable, prediction: Prediction, measured: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Predicted and measured seconds of each family that is predicted to take any time."""
    predicted: dict[str, float] = defaultdict(float)
    for cost, one in zip(table.signatures, prediction.signatures, strict=True):
        if one is not None:
            predicted[cost.kind.value] += one.seconds * cost.calls
    return {kind: (seconds, measured[kind]) for kind, seconds in predicted.items() if seconds and measured.get(kind)}


def print_families(families: dict[str, dict[str, tuple[float, float]]]) -> None:
    """Print the held-out error of each family: the factor of a model's family comes from the other models."""
    print(f"\n{'family':<16} {'models':>6} {'share':>6} {'measured / predicted':>21} {'held-out error':>15}")
    whole = sum(measured for one in families.values() for _, measured in one.values())
    for kind in sorted({kind for one in families.values() for kind in one}):
        logs = {name: math.log(one[kind][1] / one[kind][0]) for name, one in families.items() if kind in one}
        share = sum(one[kind][1] for one in families.values() if kind in one) / whole
        middle = math.exp(sum(logs.values()) / len(logs))
        left = [
            abs(own - sum(others) / len(others))
            for name, own in logs.items()
            if (others := [one for other, one in logs.items() if other != name])
        ]
        error = f"{math.exp(sum(left) / len(left)):.2f}x" if left else "one model"
        print(f"{kind:<16} {len(logs):>6} {share:>6.1%} {middle:>20.2f}x {error:>15}")


def best_of(model: Any, inputs: Any, rounds: int) -> float:
    """Wall-clock seconds of the fastest round, after one to warm up."""
    best = math.inf
    with torch.inference_mode():
        for round_number in range(rounds + 1):
            start = time.perf_counter()
            model(*inputs.args, **inputs.kwargs)
            if round_number:
                best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
