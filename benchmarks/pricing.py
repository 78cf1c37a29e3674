"""How long pricing a captured trace takes, as a part of what the capture took, layers reused and without.

    python benchmarks/pricing.py [--rounds 9] [MODEL ...]

Both take turns in one process: each trace is priced right after its capture. Figures are CPU seconds, medians over the
rounds.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.capture import Subject, subject
from torchstone.capture import capture
from torchstone.cost import price

T = TypeVar("T")

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
    """Capture, and price what was captured, in turns."""
    price(capture(given.model, given.inputs))
    captures, prices = [], []
    for _ in range(rounds):
        capture_s, trace = timed(lambda: capture(given.model, given.inputs))
        price_s, _ = timed(partial(price, trace))
        captures.append(capture_s)
        prices.append(price_s)
    part = median(price_s / capture_s for price_s, capture_s in zip(prices, captures, strict=True))
    whole_s, trace = timed(lambda: capture(given.model, given.inputs, reuse=False))
    print(
        f"{given.name.rpartition('/')[2]:<28}{len(trace.ops):>10,}{median(captures):>9.3f}s{median(prices):>9.4f}s"
        f"{part:>8.1%}{median(prices) / whole_s:>28.1%}"
    )


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of one call, and what it gave."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


if __name__ == "__main__":
    main()
