"""How reliable the performance gate is on this machine: alarms without a change, and planted slow-downs that it finds.

    python benchmarks/perf_gate.py [--comparisons N] [--load PROCESSES] [--factor 1.3]

Vectors of a small model are measured by turns in two environments while other processes load the machine. The second
environment is the same (A/A), or some of its ops wait for a third of their time longer (planted).
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from torchstone.backends.eager import Eager

PLANTED_AT_ONCE = 5


class Slowed(Eager):
    """Eager PyTorch; the ops that are named take `factor` times as long."""

    def __init__(self, ops: str = "", factor: float = 1.3) -> None:
        self._ops = set(ops.split(",")) if ops else set()
        self._factor = float(factor)

    def compile(self, module, args, kwargs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, ARG002, D102
        names = {str(node.target) for node in module.graph.nodes if node.op == "call_function"}
        if not names & self._ops:
            return module

        def slower(*inputs):  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN202
            start = time.perf_counter()
            result = module(*inputs)
            end = start + (time.perf_counter() - start) * self._factor
            while time.perf_counter() < end:
                pass
            return result

        return slower


@contextmanager
def loaded(processes: int) -> Iterator[None]:
    """A machine with other work, which comes and goes."""
    workers = [multiprocessing.Process(target=_work, args=(number,), daemon=True) for number in range(processes)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _work(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - load, no secret
    while True:
        end = time.perf_counter() + draw.uniform(0.05, 2.0)
        while time.perf_counter() < end:
            sum(range(1000))
        time.sleep(draw.uniform(0.0, 1.0))


def vectors_of(folder: Path):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """The vectors of two small models, each op with at most three configurations."""
    from torchstone.models.load_model import load  # noqa: F401 - fails here where torch is missing
    from torchstone.workflows.model_source import ModelRequest
    from torchstone.workflows.sweep_generate import GenerateRequest, generate_vectors
    from torchstone.workflows.trace_ops import TraceRequest, trace_ops

    database = str(folder / "x.db")
    for name in ("tiny:llama", "tiny:resnet"):
        trace_ops(TraceRequest(model=ModelRequest(model=name), database=database))
    made = generate_vectors(GenerateRequest(all_ops=True, database=database, folder=folder / "sweep"))
    by_op: dict[str, list[object]] = {}
    for vector in made.vectors:
        if not vector.reason and vector.role == "compute":
            by_op.setdefault(vector.op, []).append(vector)
    return [vector for group in by_op.values() for vector in group[:3]]


def main() -> None:
    """Print alarms and hits as JSON."""
    from torchstone.record.vector import SweepPlan, SweepRun, SweepSettings
    from torchstone.workflows.sweep_perf import measure_by_turns

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=8)
    parser.add_argument("--load", type=int, default=2)
    parser.add_argument("--factor", type=float, default=1.3)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    backend = f"{Path(__file__).resolve()}::Slowed"

    def plan(ops: str) -> SweepPlan:
        run = SweepRun(run="x", backend=backend, options={"ops": ops, "factor": options.factor})
        return SweepPlan(run=run, settings=SweepSettings(timeout=120.0))

    result = dict.fromkeys(("alarms", "tests", "planted", "found", "alarms_beside"), 0)
    missed: list[str] = []
    with TemporaryDirectory() as folder, loaded(options.load):
        vectors = vectors_of(Path(folder))
        ops = sorted({vector.op for vector in vectors})
        for number in range(options.comparisons):
            same = measure_by_turns((plan(""), plan("")), vectors, rounds=options.rounds)
            result["alarms"] += len(same.slower)
            result["tests"] += len(same.ops) + len(same.configurations)
            chosen = set(Random(number).sample(ops, PLANTED_AT_ONCE))  # noqa: S311 - a choice, no secret
            slowed = measure_by_turns((plan(""), plan(",".join(chosen))), vectors, rounds=options.rounds)
            found = {change.op for change in slowed.slower}
            result["planted"] += len(chosen)
            result["found"] += len(found & chosen)
            result["alarms_beside"] += len([one for one in slowed.slower if one.op not in chosen])
            ratios = {change.op: round(change.ratio, 3) for change in slowed.ops}
            missed += [f"{op} {ratios.get(op)}" for op in sorted(chosen - found)]
            print(
                json.dumps({"comparison": number, "load": os.getloadavg()[0], **result, "missed": missed}), flush=True
            )


if __name__ == "__main__":
    main()
