"""Compare the cost of every zoo model from formulas alone with a trace of the same model.

    PYTHONPATH=src python benchmarks/formula_zoo.py RESULTS.jsonl [MODEL ...] [--summary]

A model is traced in a forked child with limits on its processor time and memory, at its default inputs. A result is
appended to the file the moment it exists; models that are in the file are skipped.

    equal      FLOPs, bytes read and bytes written are those of the trace
    wrong      one of them is not
    uncovered  no formula covers the model, so `cost MODEL --by formula --no-trace` exits with 2 and the reason
    untraced   the model cannot be traced within the limits of this machine
"""

import argparse
import json
import os
import resource
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter

from torchstone.errors import TorchstoneError
from torchstone.models.inputs import InputOptions
from torchstone.models.zoo.catalogue import entries
from torchstone.workflows.cost_from_formulas import cost_from_formulas

PROCESSOR_S = 120
MEMORY_BYTES = 9 << 30


def main() -> int:
    """Compare the models that have no result yet, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--summary", action="store_true", help="only print the counts of the file")
    given = parser.parse_args()
    lines = given.results.read_text().splitlines() if given.results.exists() else []
    done = {row["model"]: row for row in map(json.loads, lines)}
    waiting = [] if given.summary else [one.id for one in entries() if one.id not in done]
    if waiting:
        import transformers.models.auto.modeling_auto  # noqa: F401 - loaded before the forks

    for model in [one for one in waiting if not given.models or one in given.models]:
        done[model] = _compared(model)
        with given.results.open("a") as file:
            file.write(json.dumps(done[model]) + "\n")
        print(json.dumps(done[model]), flush=True)
    print(dict(Counter(row["status"] for row in done.values())))
    return 1 if any(row["status"] == "wrong" for row in done.values()) else 0


def _compared(model: str) -> dict[str, object]:
    start = perf_counter()
    try:
        found = cost_from_formulas(model, InputOptions())
    except TorchstoneError as error:
        return {"model": model, "status": "uncovered", "detail": str(error)[:300]}
    formula_ms = round(1000 * (perf_counter() - start), 1)
    traced = _traced(model)
    if "flops" not in traced:
        return {"model": model, "status": "untraced", "detail": traced.get("error", "no answer within the limits")}
    by_formula = {"flops": found.flops, "bytes_read": found.bytes_read, "bytes_written": found.bytes_written}
    wrong = {name: (number, traced[name]) for name, number in by_formula.items() if traced[name] != number}
    status = "wrong" if wrong else "equal"
    return {"model": model, "status": status, "detail": wrong, "formula_ms": formula_ms, "trace_s": traced["s"]}


def _traced(model: str) -> dict[str, object]:
    """The totals of a trace, from a child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
        os.write(writer, json.dumps(_totals(model)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else {}


def _totals(model: str) -> dict[str, object]:
    import torch

    from torchstone.workflows.cost import CostRequest, cost_model
    from torchstone.workflows.model_source import ModelRequest

    torch.set_num_threads(1)
    start = perf_counter()
    try:
        totals = cost_model(CostRequest(model=ModelRequest(model=model))).table.totals
    except Exception as error:  # noqa: BLE001 - the model's own code: every failure is a row
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    return {
        "flops": totals.flops,
        "bytes_read": totals.bytes_read,
        "bytes_written": totals.bytes_written,
        "s": round(perf_counter() - start, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
