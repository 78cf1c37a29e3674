"""Decode one token with every model type of transformers that generates, at tiny size.

    PYTHONPATH=src python benchmarks/decode_types.py RESULTS.jsonl [MODEL_TYPE ...] [--limit N] [--summary]

Each type is built at tiny size without weights, given a cache of 40 tokens, captured for one token and priced, in a
forked child with a limit on its processor time and memory; then the same step runs on real tensors. A result is
appended to the file the moment it exists; types that are in the file are skipped.

    priced    the step ran and was priced; `cache_bytes` is what is kept between steps
    refused   one sentence that says why this type has no such step
    failed    it stopped for another reason
    other     the type has no class that generates (`can_generate`), or cannot be built at tiny size
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.model_types import Row, Trial, arguments_of, read_rows, run_types

PROCESSOR_S = 120
MEMORY_BYTES = 9 << 30
TOKENS = 40


def main() -> int:
    """Run the types that have no result yet, and print the counts."""
    arguments = arguments_of(__doc__).parse_args()
    trial = Trial(attempt=_try, processor_s=PROCESSOR_S, memory_bytes=MEMORY_BYTES, warm=("llama", "t5"))
    run_types(trial, arguments, read_rows(arguments.results))
    return 0


def _try(model_type: str) -> Row:
    import torch

    from torchstone.errors import ModelInputsError
    from torchstone.models import load

    torch.set_num_threads(1)
    try:
        model, _ = load(f"tiny:{model_type}")
        generates = bool(getattr(model, "can_generate", bool)())
    except Exception as error:  # noqa: BLE001 - the model's own code: every failure is a row
        return {"status": "other", "detail": f"not built: {_reason(error)}"}
    name = type(model).__name__
    if not generates:
        return {"status": "other", "detail": f"{name} does not generate", "class": name}
    try:
        return {**_decoded(model_type), "class": name}
    except ModelInputsError as error:
        return {"status": "refused", "detail": _reason(error), "class": name}
    except Exception as error:  # noqa: BLE001 - as above
        return {"status": "failed", "detail": _reason(error), "class": name}


def _decoded(model_type: str) -> Row:
    import torch

    from torchstone.capture import capture
    from torchstone.cost import price
    from torchstone.models import load
    from torchstone.models.inputs import InputOptions

    options = InputOptions(phase="decode", cache_len=TOKENS)
    model, inputs = load(f"tiny:{model_type}", options=options)
    trace = capture(model, inputs)
    if trace.failure is not None:
        return {"status": "failed", "detail": f"{trace.failure.error} (in {trace.failure.module or 'the root'})"}
    table = price(trace)
    row: Row = {
        "status": "priced",
        "detail": ", ".join(table.unpriced),
        "mode": trace.provenance.mode,
        "flops": table.totals.flops,
        "cache_bytes": table.cache.size_bytes if table.cache else 0,
    }
    real, given = load(f"tiny:{model_type}", options=options, device="cpu")
    try:
        with torch.no_grad():
            real(*given.args, **given.kwargs)
    except Exception as error:  # noqa: BLE001 - as above
        return {**row, "status": "failed", "detail": f"on real tensors: {_reason(error)}"}
    return row


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


if __name__ == "__main__":
    sys.exit(main())
