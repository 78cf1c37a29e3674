"""Modules of a real model on a backend: forked from a process that holds the model, or a fresh process for each.

    python benchmarks/check_modules.py [--model tiny:bert] [--jobs 2] [--rounds 3]

Both ways run the same code on the same recorded inputs and compare with eager. The fresh process loads torch and the
model anew for each module, as tools do that start themselves once per module.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torchstone.check.check_model import Subject, environment_of, run_check
from torchstone.check.plan import plan
from torchstone.check.record_values import read_unserializable
from torchstone.check.requests import Requests
from torchstone.check.settings import Folder, Granularity, Settings
from torchstone.record.codec import load
from torchstone.record.task import Ending, Task
from torchstone.record.trace import Trace
from torchstone.workers.local_pool import LocalPool
from torchstone.workflows.check import STAGES

FRESH_MODULES = 4
_FRESH = """
import json, sys
setup, payload = json.loads(sys.stdin.read())
from torchstone.check.model_setup import set_up
from torchstone.check.child.run import run_module
set_up(setup)
assert run_module(payload)["outcome"] == "passed"
"""


def main() -> None:
    """Measure both ways and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny:bert")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    subject = Subject(model=given.model)
    settings = Settings(backend="eager", exports_ir=False, granularity=Granularity.MODULE)
    with TemporaryDirectory() as temporary:
        folder = Folder(path=Path(temporary))
        run_check(subject, settings, folder, stages=STAGES)
        tasks = unit_tasks(folder, settings)
        forked_s, ready_s = min(in_forks(tasks, subject, settings, given.jobs) for _ in range(given.rounds))
        setup = environment_of(settings, subject).setup_payload
        fresh_s = min(in_fresh_processes(tasks[:FRESH_MODULES], setup, given.jobs) for _ in range(given.rounds))
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {given.jobs} at once, {given.rounds} rounds")
    print(f"{given.model}: {len(tasks)} unique modules, each on eager with its recorded inputs\n")
    print("| way | modules/s | ms per module | against a fresh process |\n|---|---:|---:|---:|")
    for name, each_s in (
        ("a fork per module", forked_s),
        ("the same, with the start of the pool", forked_s + ready_s / len(tasks)),
        ("a fresh process per module, model loaded each time", fresh_s),
    ):
        print(f"| {name} | {1 / each_s:,.2f} | {each_s * 1e3:,.1f} | {fresh_s / each_s:,.1f}x |")


def unit_tasks(folder: Folder, settings: Settings) -> list[Task]:
    """A task for every unit of a checked model."""
    trace = load(folder.trace, Trace)
    found = plan(trace)
    requests = Requests(trace, folder, settings, read_unserializable(folder), runs_code=True)
    asked = [requests.for_unit(unit).task for unit in found.units.values()]
    return [task for task in asked if task.entry.endswith(":run_module")]


def in_forks(tasks: list[Task], subject: Subject, settings: Settings, jobs: int) -> tuple[float, float]:
    """Seconds per module, and seconds until the pool was ready."""
    start = time.perf_counter()
    with LocalPool(environment_of(settings, subject), jobs) as pool:
        pool.wait_until_ready()
        ready = time.perf_counter()
        for task in tasks:
            pool.submit(task)
        passed = sum(
            ended.ending is Ending.ANSWERED and (ended.answer or {}).get("outcome") == "passed"
            for ended in pool.results()
        )
        end = time.perf_counter()
    if passed != len(tasks):
        sys.exit(f"only {passed} of {len(tasks)} modules passed")
    return (end - ready) / len(tasks), ready - start


def in_fresh_processes(tasks: list[Task], setup: dict[str, Any], jobs: int) -> float:
    """Seconds per module with a process for each that loads everything anew."""
    start = time.perf_counter()
    waiting = [json.dumps([setup, task.payload]).encode() for task in tasks]
    while waiting:
        running = []
        for text in waiting[:jobs]:
            process = subprocess.Popen([sys.executable, "-c", _FRESH], stdin=subprocess.PIPE)
            assert process.stdin is not None  # noqa: S101 - it was asked for
            process.stdin.write(text)
            process.stdin.close()
            running.append(process)
        waiting = waiting[jobs:]
        if any(process.wait() for process in running):
            sys.exit("a fresh process failed")
    return (time.perf_counter() - start) / len(tasks)


if __name__ == "__main__":
    main()
