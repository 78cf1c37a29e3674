"""Verdicts of ttnn's mock device on master files: counts, configurations per second, memory of one long process.

    python benchmarks/ttnn_replay.py --python ENV MASTER.json:n300 MASTER.json:auto

Each file is judged twice, so that the second time finds a warm kernel cache; then one process alone makes thousands of
calls, and its memory is read before and after.
"""

import argparse
import json
import platform
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchstone.backends.ttnn.boards import find_board
from torchstone.backends.ttnn.environment import interpreter_of
from torchstone.record.task import Ending, Limits, Task
from torchstone.sweep.run import TTNN_CALL, TTNN_ENTRY, ttnn_environment
from torchstone.workers.local_pool import LocalPool
from torchstone.workflows.ttnn import JudgeRequest, judge_configurations

RESULTS = Path(__file__).with_name("results") / "ttnn_replay.json"
REPEATS = 3_000


def judged(path: Path, device: str, python: str, jobs: int) -> dict[str, Any]:
    """The verdicts on one file, the second time it is judged."""
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            request = JudgeRequest(paths=(path,), devices=(device,), pythons=(python,), folder=Path(folder), jobs=jobs)
            (run,) = judge_configurations(request).runs
            elapsed_s = time.perf_counter() - start
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "file": path.name,
        "device": device,
        "outcomes": run.outcomes,
        "approximate": run.approximate,
        "causes": {one.cause: one.configurations for one in run.causes},
        "warm_s": round(elapsed_s, 2),
        "warm_cpu_s": round(cpu_s, 2),
        "ms_per_configuration": round(1000 * elapsed_s / run.configurations, 2),
    }


def growth(python: str) -> dict[str, Any]:
    """The memory of one process after a few calls and after thousands."""
    environment = ttnn_environment(find_board("n150"), python=python)
    entry = "torchstone.sweep.child.ttnn_calls:resident_bytes"
    sizes = []
    with LocalPool(environment, jobs=1, limits=Limits(deadline_s=300), tasks_per_child=REPEATS + 3) as pool:
        pool.submit(Task(id="warm", entry=TTNN_ENTRY, payload=TTNN_CALL))
        pool.submit(Task(id="before", entry=entry))
        for number in range(REPEATS):
            pool.submit(Task(id=str(number), entry=TTNN_ENTRY, payload=TTNN_CALL))
        pool.submit(Task(id="after", entry=entry))
        start = time.perf_counter()
        for result in pool.results():
            assert result.ending is Ending.ANSWERED, result.evidence.error  # noqa: S101 - a benchmark
            if result.id in ("before", "after"):
                sizes.append(int(result.answer))
        elapsed_s = time.perf_counter() - start
    return {
        "calls": REPEATS,
        "grown_bytes": sizes[1] - sizes[0],
        "ms_per_repeated_call": round(1000 * elapsed_s / REPEATS, 3),
    }


def main() -> None:
    """Measure, print and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("files", nargs="+", metavar="FILE:DEVICE")
    options = parser.parse_args()
    python = interpreter_of(options.python)
    pairs = [(Path(text.rpartition(":")[0]), text.rpartition(":")[2]) for text in options.files]
    document = {
        "date": datetime.now(tz=UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {platform.system()}",
        "command": "python benchmarks/ttnn_replay.py " + " ".join(f"{path.name}:{name}" for path, name in pairs),
        "files": [judged(path, device, python, options.jobs) for path, device in pairs],
        "growth": growth(python),
    }
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
