"""The largest batch that is worked out from one capture, against captures of other batches.

    python benchmarks/largest_batch.py [MODEL ...] [--hardware n150] [--batch 1]

It is worked out from a capture of one sequence or image, or of `--batch`. The truth is searched for with captures of
other batches: the largest one whose peak fits. A range must contain it; `wrong` marks those that do not. Without MODEL,
models of all families are measured.
"""

import argparse
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace

from torchstone.models.inputs import InputOptions
from torchstone.record.cost import Prediction
from torchstone.workflows.cost import (
    CostRequest,
    PricingOptions,
    as_shipped,
    load_priced_trace,
    price_trace,
    pricing_of,
)
from torchstone.workflows.model_source import ModelRequest

DECODE = InputOptions(phase="decode", cache_len=1000)
CASES: dict[str, tuple[InputOptions, ...]] = {
    "gpt2": (InputOptions(), DECODE),
    "meta-llama/Llama-3.2-1B": (InputOptions(), InputOptions(seq_len=4000), DECODE),
    "google/gemma-3-1b-pt": (InputOptions(), InputOptions(seq_len=4000), DECODE),
    "google-bert/bert-base-uncased": (InputOptions(),),
    "google-t5/t5-base": (InputOptions(), DECODE),
    "openai/whisper-small": (InputOptions(),),
    "openai/clip-vit-base-patch32": (InputOptions(),),
    "facebook/detr-resnet-50": (InputOptions(),),
    "facebook/sam-vit-base": (InputOptions(),),
    "microsoft/swin-tiny-patch4-window7-224": (InputOptions(),),
    "microsoft/resnet-50": (InputOptions(),),
    "state-spaces/mamba-130m-hf": (InputOptions(), DECODE),
    "tiny:mixtral": (InputOptions(), DECODE),
    "tiny:deepseek_v3": (InputOptions(), DECODE),
    "tiny:big_bird": (InputOptions(),),
    "tiny:perceiver": (InputOptions(),),
    "tiny:llava": (InputOptions(),),
    "tiny:segformer": (InputOptions(),),
    "tiny:wav2vec2": (InputOptions(),),
}


def main() -> None:
    """Print a row for each model and phase."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="*")
    parser.add_argument("--hardware", default="n150")
    parser.add_argument("--batch", type=int, default=1)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'model':<42} {'run':<18} {'ideal':>17} {'captured':>9} {'eager':>17} {'captured':>9}")
    for name in chosen.model or CASES:
        for options in CASES.get(name, (InputOptions(), DECODE)):
            _row(name, options, chosen.hardware, chosen.batch)


def _row(name: str, options: InputOptions, hardware: str, first_batch: int) -> None:
    known: dict[int, Prediction] = {}

    def at(batch: int) -> Prediction:
        if batch not in known:
            known[batch] = _prediction(name, options, hardware, batch)
        return known[batch]

    first = at(first_batch)
    run = "decode" if options.phase else f"{options.seq_len} tokens" if options.seq_len else ""
    cells = [
        _cells(least, most, _captured(peak, first.hardware.memory_bytes, least or 1))
        for least, most, peak in (
            (first.largest_batch, first.largest_batch_at_most, lambda batch: at(batch).peak_bytes),
            (
                first.eager_largest_batch,
                first.eager_largest_batch_at_most,
                lambda batch: at(batch).eager_peak_bytes or 0,
            ),
        )
    ]
    print(f"{name:<42} {run:<18} {' '.join(cells)}", flush=True)


def _cells(least: int | None, most: int | None, captured: int) -> str:
    if least is None or most is None:
        return f"{'not known':>17} {captured:>9,}"
    shown = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{shown:>17} {captured:>9,}{'' if least <= captured <= most else ' wrong'}"


def _captured(peak_of: Callable[[int], int], memory_bytes: int, guess: int) -> int:
    """The largest batch that fits, by captures alone: out from a guess until it is enclosed, then by halves."""
    low, high, step = guess, guess + 1, max(guess // 64, 1)
    while low > 0 and peak_of(low) > memory_bytes:
        low, high, step = max(low - step, 0), low, 2 * step
    while peak_of(high) <= memory_bytes:
        low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if peak_of(middle) <= memory_bytes else (low, middle)
    return low


def _prediction(name: str, options: InputOptions, hardware: str, batch: int) -> Prediction:
    model = ModelRequest(model=name, options=replace(options, batch_size=batch), cached=False)
    request = CostRequest(model=model, pricing=PricingOptions(hardware=hardware))
    trace = load_priced_trace(request)  # without the captures by which `cost` verifies its answer
    table = price_trace(trace, as_shipped(trace, pricing_of(request)))
    if trace.failure is not None or table.prediction is None:
        sys.exit(f"{name} with a batch of {batch}: {trace.failure}")
    return table.prediction


if __name__ == "__main__":
    main()
