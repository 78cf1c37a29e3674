"""Price every model type of transformers at its default size, without weights.

    PYTHONPATH=src python benchmarks/default_sizes.py RESULTS.jsonl [MODEL_TYPE ...] [--limit N] [--summary]

Each type is built on the meta device at the default configuration of its class, captured on tensors without data and
priced, in a forked child with a limit on its processor time and memory. Where that fails, the type is run at tiny size
on real tensors: a model that does not even run there is none of this benchmark's business. A result is appended to
the file the moment it exists; types that are in the file are skipped.

    priced   all of it ran; `digest` is one of the op sequence, the FLOPs, the bytes and both ends of the peak
    partly   it ran, and some ops have no price
    failed   it stopped, although the type runs at tiny size
    invalid  so does a bare forward pass on fake tensors, for a reason other than missing values: the defaults of the
             configuration do not fit together
    unbuilt  it cannot be built or run on this machine, not even at tiny size
    slow     no answer within the limit on processor time or memory
    crashed  the process ended without an answer

`--compare OTHER.jsonl` lists the types whose digest is another one there.
"""

import hashlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.model_types import Trial, arguments_of, read_rows, run_types

if TYPE_CHECKING:
    from torch import nn

    from torchstone.models.inputs import Inputs
    from torchstone.models.pretrained import Blueprint
    from torchstone.record.cost import CostTable
    from torchstone.record.trace import Trace

PROCESSOR_S = 120
MEMORY_BYTES = 9 << 30
SMALL = 128_000_000  # parameters


def main() -> int:
    """Run the types that have no result yet, and print the counts."""
    parser = arguments_of(__doc__)
    parser.add_argument("--compare", type=Path, help="results of another version")
    arguments = parser.parse_args()
    done = read_rows(arguments.results)
    trial = Trial(attempt=_try, processor_s=PROCESSOR_S, memory_bytes=MEMORY_BYTES, warm=("bert", "vit", "mixtral"))
    run_types(trial, arguments, done)
    return _compare(done, read_rows(arguments.compare)) if arguments.compare else 0


def _compare(these: dict[str, dict[str, object]], others: dict[str, dict[str, object]]) -> int:
    both = [one for one in these if "digest" in these[one] and "digest" in others.get(one, {})]
    changed = [one for one in both if these[one]["digest"] != others[one]["digest"]]
    print(f"{len(both)} types in both, {len(changed)} with other numbers: {', '.join(changed)}")
    return 1 if changed else 0


def _try(model_type: str) -> dict[str, object]:
    import torch

    torch.set_num_threads(1)
    try:
        return _priced(model_type)
    except Exception as error:  # noqa: BLE001 - the model's own code: every failure is a row
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if any(one in why for one in ("DataDependent", "DynamicOutput")):
        status = "failed"
    else:
        status = "invalid" if _fails_bare(model_type) else "failed"
    tiny = _runs_at_tiny_size(model_type)
    return {"status": "unbuilt" if tiny else status, "detail": why, "tiny": tiny or "runs"}


def _fails_bare(model_type: str) -> str:
    """Why a forward pass on torch's own fake tensors fails; "" where it does not."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_map_only

    try:
        model, inputs = _built(model_type)[1:]
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with torch.no_grad(), mode:
            held = (*model.named_parameters(), *model.named_buffers())
            weights = {name: torch.empty_like(one, device="cpu") if one.is_meta else one for name, one in held}
            args, kwargs = tree_map_only(torch.Tensor, mode.from_tensor, (inputs.args, inputs.kwargs))
            torch.func.functional_call(model, weights, args=args, kwargs=kwargs)
    except Exception as error:  # noqa: BLE001 - the model's own code
        return f"{type(error).__name__}: {error}"
    return ""


def _built(model_type: str) -> "tuple[Blueprint, nn.Module, Inputs]":
    from torchstone.models.example_inputs.architecture import inputs_for_architecture
    from torchstone.models.inputs import InputOptions
    from torchstone.models.pretrained import build, default_blueprint, quiet_and_offline

    with quiet_and_offline():
        blueprint = default_blueprint(model_type)
        model = build(blueprint, device="meta", seed=0)
        inputs = inputs_for_architecture(model, blueprint, InputOptions())
    return blueprint, model, inputs


def _priced(model_type: str) -> dict[str, object]:
    from torchstone.capture.capture_model import About, capture
    from torchstone.cost import price
    from torchstone.models.pretrained import build

    blueprint, model, inputs = _built(model_type)
    parameters = sum(one.numel() for one in model.parameters())
    about = About(materialise=lambda: build(blueprint, device="cpu", seed=0))
    start = time.process_time()
    trace = capture(model, inputs, "fake")
    seconds = time.process_time() - start
    if trace.failure is not None and parameters <= SMALL:
        trace = capture(model, inputs, about=about)  # what cannot be assumed is seen in a run with random weights
    if trace.failure is not None:
        msg = f"{trace.failure.error} (in {trace.failure.module or 'the root'}, {trace.failure.location})"
        raise RuntimeError(msg)
    table = price(trace)
    unpriced = ", ".join(table.unpriced)
    return {
        "status": "partly" if unpriced else "priced",
        "detail": unpriced or "; ".join(getattr(trace, "assumed", ())),
        "class": blueprint.model_class.__name__,
        "mode": trace.provenance.mode,
        "size": "tiny" if blueprint.name.startswith("tiny:") else "default",
        "parameters": parameters,
        "ops": len(trace.ops),
        "flops": table.totals.flops,
        "peak": [table.peak.total_bytes, table.peak.eager_bytes],
        "digest": _digest(trace, table),
        "capture_s": round(seconds, 3),
    }


def _digest(trace: "Trace", table: "CostTable") -> str:
    sequence = hashlib.sha256()
    signatures = [repr(one) for one in trace.recorded_ops.signatures]
    for signature in trace.recorded_ops.signature_of:
        sequence.update(signatures[signature].encode())
    storages = trace.recorded_tensors.storage_of
    peaks = (table.peak.total_bytes, table.peak.eager_bytes)
    for part in (trace.recorded_ops.inputs, storages, trace.repeats, table.totals, table.traffic, *peaks):
        sequence.update(repr(part).encode())
    return sequence.hexdigest()[:16]


def _runs_at_tiny_size(model_type: str) -> str:
    """Why the type does not run on real tensors at tiny size; "" where it does."""
    import torch

    from torchstone.models import load

    try:
        model, inputs = load(f"tiny:{model_type}", device="cpu")
        with torch.no_grad():
            model(*inputs.args, **inputs.kwargs)
    except Exception as error:  # noqa: BLE001 - as above
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
