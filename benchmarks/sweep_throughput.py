"""Small vectors per second: a fresh Python process each, all in one process, and isolated by `sweep run`.

PYTHONPATH=src python benchmarks/sweep_throughput.py [--vectors 1000] [--fresh 4] [--jobs 1]
"""

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from torchstone.record.config import Configuration, Occurrence, SeenConfiguration
from torchstone.record.task import Limits
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument
from torchstone.record.vector import Vector
from torchstone.sweep.run import Runner, RunPolicy, backend_environment
from torchstone.sweep.vectors import payload_of, vector_of
from torchstone.workers.local_pool import LocalPool

_OPS = ("add", "mul", "sub", "maximum")
_CHILD = """
import json, sys, time
import torch
torch.set_num_threads(1)
from torchstone.sweep.child.run import run_vector, set_up
set_up({"backend": "eager"})
payloads = json.load(sys.stdin)
run_vector(payloads[0])
start = time.perf_counter()
answers = [run_vector(payload)["outcome"] for payload in payloads]
print(json.dumps({"elapsed_s": time.perf_counter() - start, "passed": answers.count("passed")}))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectors", type=int, default=1000)
    parser.add_argument("--fresh", type=int, default=4, help="fresh processes to measure")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tasks-per-child", type=int, default=64)
    asked = parser.parse_args()
    vectors = [_vector(number) for number in range(asked.vectors)]
    payloads = [{**payload_of(vector), "backend": "eager"} for vector in vectors]
    fresh_s = _fresh(payloads[: asked.fresh]) / asked.fresh
    inside_s = _in_process(payloads) / asked.vectors
    alone_s = _isolated(vectors, asked.jobs, 1) / asked.vectors
    lanes_s = _isolated(vectors, asked.jobs, asked.tasks_per_child) / asked.vectors
    print(f"{asked.vectors} vectors (element-wise, 64 to 4,096 elements), {asked.jobs} at a time")
    print(f"{'':48}{'per vector':>12}{'per second':>12}")
    for name, seconds in (
        (f"a fresh Python process each ({asked.fresh} measured)", fresh_s),
        ("all in one process, no isolation", inside_s),
        ("sweep: a fork each", alone_s),
        (f"sweep: up to {asked.tasks_per_child} in a fork (what `sweep run` does)", lanes_s),
    ):
        print(f"{name:48}{seconds * 1e3:9.2f} ms{1 / seconds:12.1f}")
    print(f"against fresh processes {fresh_s / lanes_s:.0f}x; against one process {lanes_s / inside_s:.2f}x the time")


def _vector(number: int) -> Vector:
    op = _OPS[number % len(_OPS)]
    size = 64 + 4 * (number % 1000)
    spec = TensorSpec(shape=(size,), dtype="float32", stride=(1,), storage_offset=number // 1000)
    arguments = (Argument(name="self", value=spec), Argument(name="other", value=spec))
    more = (Argument(name="alpha", value=1),) if op in ("add", "sub") else ()
    overload = "default" if op == "maximum" else "Tensor"
    configuration = Configuration(op=f"aten.{op}.{overload}", arguments=arguments + more)
    return vector_of(
        SeenConfiguration(configuration=configuration, occurrences=(Occurrence(source="benchmark", count=1),))
    )


def _fresh(payloads: list[dict[str, Any]]) -> float:
    start = time.perf_counter()
    for payload in payloads:
        _child([payload])
    return time.perf_counter() - start


def _in_process(payloads: list[dict[str, Any]]) -> float:
    told = _child(payloads)
    _must_be(told["passed"], len(payloads))
    return float(told["elapsed_s"])


def _child(payloads: list[dict[str, Any]]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], input=json.dumps(payloads), capture_output=True, text=True, check=True
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _isolated(vectors: list[Vector], jobs: int, per_child: int) -> float:
    environment = backend_environment("eager", {})
    with LocalPool(environment, jobs=jobs, limits=Limits(deadline_s=30.0), tasks_per_child=per_child) as pool:
        pool.wait_until_ready()
        start = time.perf_counter()
        policy = RunPolicy(extra={"backend": "eager"}, probes=False, window=max(64, 4 * jobs * per_child))
        results = list(Runner(pool, policy).results(vectors))
        elapsed_s = time.perf_counter() - start
    _must_be(sum(result.outcome.value == "passed" for result in results), len(vectors))
    return elapsed_s


def _must_be(passed: int, wanted: int) -> None:
    if passed != wanted:
        msg = f"{passed} of {wanted} vectors passed"
        raise SystemExit(msg)


if __name__ == "__main__":
    main()
