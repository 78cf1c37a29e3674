"""What it costs to run a small task in a process of its own, beside the two ends: no isolation, and a fresh process.

    python benchmarks/check_throughput.py [--rounds 3] [--tasks 200]

The task is one small module on one input, torch being loaded. All ways run in one go, on the same machine, each the
best of several rounds; a fresh process per task is what a tool does that starts itself anew for every module. Wall time
is for `--jobs` at once, CPU time counts every process, the loading of torch left out where it is paid once.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ENTRY = "check_throughput:run_module"
WIDTH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one task."""

    wall_s: float
    cpu_s: float


@cache
def module() -> Any:
    """The small module, built once in a process."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))


def set_up(_: dict[str, Any]) -> None:
    """Build it before the first fork."""
    module()


def run_module(payload: dict[str, Any]) -> dict[str, float]:
    """The task: run the module on an input and say something about the output."""
    import torch

    with torch.inference_mode():
        output = module()(torch.full((8, WIDTH), float(payload["value"])))
        return {"mean": output.mean().item(), "largest": output.abs().max().item()}


def main() -> None:
    """Measure every way and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    ways: dict[str, tuple[Callable[[int], Cost], int]] = {
        "in one process, no isolation": (in_process, 20 * given.tasks),
        "100 tasks per fork": (lambda tasks: in_pool(tasks, given.jobs, 100), 20 * given.tasks),
        "10 tasks per fork": (lambda tasks: in_pool(tasks, given.jobs, 10), 4 * given.tasks),
        "a fork per task": (lambda tasks: in_pool(tasks, given.jobs, 1), given.tasks),
        "a fresh process per task": (lambda tasks: in_fresh_processes(tasks, given.jobs), 2 * given.jobs),
    }
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {given.jobs} at once, {given.rounds} rounds\n")
    costs = {name: best([way(tasks) for _ in range(given.rounds)]) for name, (way, tasks) in ways.items()}
    show(costs)


def best(rounds: list[Cost]) -> Cost:
    """What the machine can do when nobody disturbs it."""
    return Cost(wall_s=min(cost.wall_s for cost in rounds), cpu_s=min(cost.cpu_s for cost in rounds))


def in_process(tasks: int) -> Cost:
    """Call the task in a loop, in one process that has torch."""
    program = (
        "import json, time, check_throughput as it\n"
        "it.run_module({'value': 0})\n"
        "wall, cpu = time.perf_counter(), time.process_time()\n"
        f"for n in range({tasks}): json.dumps(it.run_module(json.loads(json.dumps({{'value': n}}))))\n"
        f"print(json.dumps([(time.perf_counter() - wall) / {tasks}, (time.process_time() - cpu) / {tasks}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, check=True, capture_output=True)
    wall_s, cpu_s = json.loads(done.stdout)
    return Cost(wall_s=wall_s, cpu_s=cpu_s)


def in_pool(tasks: int, jobs: int, tasks_per_child: int) -> Cost:
    """Run the tasks in a pool; the time until it is ready does not count, neither in seconds nor in CPU seconds."""
    idle_s = pool_cpu_s(0, jobs, tasks_per_child)[1]
    wall_s, cpu_s = pool_cpu_s(tasks, jobs, tasks_per_child)
    return Cost(wall_s=wall_s / tasks, cpu_s=max(0.0, cpu_s - idle_s) / tasks)


def pool_cpu_s(tasks: int, jobs: int, tasks_per_child: int) -> tuple[float, float]:
    """Seconds for the tasks, and CPU seconds of everything from start to end."""
    from torchstone.record.task import Ending, Environment, Limits, Task
    from torchstone.workers.local_pool import LocalPool

    folder = str(Path(__file__).parent)
    environment = Environment(
        python=sys.executable,
        preload=("torch", "check_throughput"),
        setup="check_throughput:set_up",
        extra_paths=(folder,),
    )
    before_s = all_cpu_s()
    with LocalPool(environment, jobs, Limits(deadline_s=60), tasks_per_child=tasks_per_child) as pool:
        pool.wait_until_ready()
        start = time.perf_counter()
        for number in range(tasks):
            pool.submit(Task(id=str(number), entry=ENTRY, payload={"value": number}))
        answered = sum(result.ending is Ending.ANSWERED for result in pool.results())
        wall_s = time.perf_counter() - start
    if answered != tasks:
        sys.exit(f"only {answered} of {tasks} tasks were answered")
    return wall_s, all_cpu_s() - before_s


def in_fresh_processes(tasks: int, jobs: int) -> Cost:
    """Start Python anew for every task, `jobs` at once."""
    program = "import check_throughput as it; it.run_module({'value': 1})"
    before_s, start = all_cpu_s(), time.perf_counter()
    running: list[subprocess.Popen[bytes]] = []
    for _ in range(tasks):
        if len(running) == jobs:
            running.pop(0).wait()
        running.append(subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parent))
    for process in running:
        process.wait()
    return Cost(wall_s=(time.perf_counter() - start) / tasks, cpu_s=(all_cpu_s() - before_s) / tasks)


def all_cpu_s() -> float:
    """CPU seconds of this process and of all that it has waited for."""
    return sum(os.times()[:4])


def show(costs: dict[str, Cost]) -> None:
    """Print the table, and what isolation adds to a task."""
    fresh, bare = costs["a fresh process per task"], costs["in one process, no isolation"]
    print(f"| {'way':<30} | tasks/s | ms per task | CPU ms | against a fresh process |")
    print(f"|{'-' * 32}|---:|---:|---:|---:|")
    for name, cost in costs.items():
        row = f"| {name:<30} | {1 / cost.wall_s:,.0f} | {cost.wall_s * 1e3:.2f} | {cost.cpu_s * 1e3:.2f} "
        print(f"{row}| {fresh.wall_s / cost.wall_s:,.0f}x |")
    for name in ("a fork per task", "10 tasks per fork", "100 tasks per fork"):
        added_s = costs[name].cpu_s - bare.cpu_s
        print(f"\n{name}: isolation adds {added_s * 1e3:.2f} ms of CPU time to a task", end="")
    print()


if __name__ == "__main__":
    main()
