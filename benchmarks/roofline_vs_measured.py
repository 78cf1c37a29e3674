"""Predicted against measured time on this machine's CPU, for models small enough to run here.

The CPU is measured first, then each model runs for real. The error is what a roofline leaves out: caches, kernels that
do not reach the peak, the time of Python between ops. Run it alone on the machine.

    python benchmarks/roofline_vs_measured.py [--rounds 3] [MODEL ...]
"""

import argparse
import math
import time
from typing import Any

import torch

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.cpu_limits import measure_cpu
from torchstone.cost.roofline import hardware_toml, predict
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load

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
    for name in given.models:
        model, inputs = load(name, options=InputOptions(seq_len=128), device="cpu")
        trace = capture(model, inputs)
        predicted = predict(trace, price(trace), hardware).total_s
        measured = best_of(model, inputs, given.rounds)
        ratios.append(measured / predicted)
        print(f"{name:<32} {predicted:>9.3f}s {measured:>9.3f}s {ratios[-1]:>20.2f}x")
    typical = math.exp(sum(map(math.log, ratios)) / len(ratios))
    spread = math.exp(sum(abs(math.log(ratio / typical)) for ratio in ratios) / len(ratios))
    print(f"\ngeometric mean {typical:.2f}x; after that factor a model is off by {spread:.2f}x on average")


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
