"""Build every transformers model type at tiny size and run it once on CPU; print what works and why the rest does not.

    python tools/try_architectures.py [MODEL_TYPE ...] [--json FILE]

Each type runs in a forked child with a deadline and a memory limit, so that one bad type ends nothing else.
"""

import argparse
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

DEADLINE_S = 60
MEMORY_BYTES = 6 << 30


def main() -> int:
    """Try the asked types, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--trace", action="store_true", help="print the traceback of each failure")
    arguments = parser.parse_args()
    outcomes = {}
    for model_type in arguments.types or _all_types():
        outcome = outcomes[model_type] = _in_child(model_type, trace=arguments.trace)
        print(f"{outcome['status']:8} {outcome['elapsed_s']:6.2f} s  {model_type:34} {outcome['detail']}", flush=True)
    print(dict(Counter(outcome["status"] for outcome in outcomes.values())))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(outcomes, indent=1))
    return 0


def _all_types() -> Iterator[str]:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    yield from CONFIG_MAPPING_NAMES


def _in_child(model_type: str, *, trace: bool) -> dict[str, object]:
    reader, writer = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        signal.alarm(DEADLINE_S)
        os.write(writer, json.dumps(_try(model_type, trace=trace)).encode()[:60000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        answer = answers.read()
    _, status = os.waitpid(child, 0)
    outcome = json.loads(answer) if answer else {"status": "died", "detail": f"wait status {status}"}
    return {**outcome, "elapsed_s": round(time.monotonic() - started, 2)}


def _try(model_type: str, *, trace: bool) -> dict[str, str]:
    import torch

    from torchstone.models import load
    from torchstone.models.pretrained import quiet_and_offline

    torch.set_num_threads(1)
    try:
        with quiet_and_offline():
            model, inputs = load(f"tiny:{model_type}", device="cpu")
    except Exception as error:  # noqa: BLE001 - the child's border: every failure is a line of the table
        return _failed("unbuilt" if "cannot be built" in str(error) else "failed", error, trace=trace)
    size = sum(parameter.numel() for parameter in model.parameters())
    try:
        with quiet_and_offline(), torch.no_grad():
            model(*inputs.args, **inputs.kwargs)
    except Exception as error:  # noqa: BLE001 - as above
        return _failed("crashed", error, trace=trace)
    return {"status": "ok", "detail": f"{type(model).__name__} {size} {sorted(inputs.kwargs)}"}


def _failed(status: str, error: Exception, *, trace: bool) -> dict[str, str]:
    if trace:
        traceback.print_exc()
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())[:200]
    return {"status": status, "detail": f"{type(error).__name__}: {text} ({Path(where.filename).name}:{where.lineno})"}


if __name__ == "__main__":
    import torchstone.models.example_inputs.architecture  # noqa: F401 - loaded once, before the forks

    sys.exit(main())
