"""How long pricing a captured trace takes, as a part of what the capture took, layers reused and without.

    python benchmarks/pricing.py [--rounds 9] [MODEL ...]

Both take turns in one process; figures are CPU seconds, medians over the rounds.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.capture import Subject, subject
from torchstone.capture import capture
from torchstone.cost import price

MODELS = (
    "meta-llama/Llama-3.1-405B", "deepseek-ai/DeepSeek-V3", "meta-llama/Llama-2-7b-hf", "google/flan-t5-large",
    "openai-community/gpt2", "bert-base-uncased", "microsoft/resnet-50",
)  # fmt: skip


def main() -> None:
    """Print one row for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("models", nargs="*", default=MODELS)
    given = parser.parse_args()
    print(f"{'model':<28}{'op calls':>10}{'capture':>10}{'price':>10}{'part':>8}{'of a capture without reuse':>28}")
    for name in given.models:
        measure(subject(name), given.rounds)


def measure(given: Subject, rounds: int) -> None:
    """Capture and price in turns."""
    trace = capture(given.model, given.inputs)
    price(trace)
    captures, prices = [], []
    for _ in range(rounds):
        captures.append(seconds(lambda: capture(given.model, given.inputs)))
        prices.append(seconds(lambda: price(trace)))
    part = median(price_s / capture_s for price_s, capture_s in zip(prices, captures, strict=True))
    whole = seconds(lambda: capture(given.model, given.inputs, reuse=False))
    print(
        f"{given.name.rpartition('/')[2]:<28}{len(trace.ops):>10,}{median(captures):>9.3f}s{median(prices):>9.4f}s"
        f"{part:>8.1%}{median(prices) / whole:>28.1%}"
    )


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
