"""Verdicts of ttnn's mock device on master files: counts, configurations per second, memory of one long process.

    python benchmarks/ttnn_replay.py --python ENV MASTER.json:n300 MASTER.json:auto

Each file is judged twice, so that the second time finds a warm kernel cache; then one process alone makes thousands of
calls, and its memory is read before and after.
"""

import argparse
import os
import platform
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

RESULTS = Path(__file__).with_name("results") / "ttnn_replay.md"
REPEATS = 2_000


def judged(path: Path, device: str, python: str, jobs: int) -> dict[str, Any]:
    """The verdicts on one file, the second time it is judged."""
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            request = JudgeRequest(paths=(path,), devices=(device,), pythons=(python,), folder=Path(folder), jobs=jobs)
            (run,) = judge_configurations(request).runs
            elapsed_s = time.perf_counter() - start
    return {
        "file": path.name,
        "device": device,
        "outcomes": run.outcomes,
        "approximate": run.approximate,
        "causes": {one.cause: one.configurations for one in run.causes},
        "warm_s": round(elapsed_s, 2),
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
                sizes.append(int(result.answer or 0))
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
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": f"load average {os.getloadavg()[0]:.0f} at the start",
        "command": "python benchmarks/ttnn_replay.py " + " ".join(f"{path.name}:{name}" for path, name in pairs),
        "files": [judged(path, device, python, options.jobs) for path, device in pairs],
        "growth": growth(python),
    }
    RESULTS.write_text(page(document), encoding="utf-8")
    sys.stdout.write(RESULTS.read_text(encoding="utf-8"))


def page(document: dict[str, Any]) -> str:
    """The results as a page."""
    lines = [
        "# Verdicts of ttnn's mock device",
        "",
        f"{document['date']}, {document['machine']}, {document['load']}. `{document['command']}`",
        "",
        "| file | device | verdicts | approximate | warm, s | ms per configuration |",
        "|---|---|---|---|---|---|",
    ]
    for one in document["files"]:
        counts = ", ".join(f"{count:,} {name}" for name, count in one["outcomes"].items())
        times = f"{one['warm_s']} | {one['ms_per_configuration']}"
        lines.append(f"| {one['file']} | {one['device']} | {counts} | {one['approximate']} | {times} |")
    grown = document["growth"]
    lines += [
        "",
        f"One process, {grown['calls']:,} equal calls: {grown['ms_per_repeated_call']} ms each, memory grew by "
        f"{grown['grown_bytes'] / 2**20:.1f} MiB. A sweep replaces a process after 50 calls.",
        "",
        "A mock device has no values: accepted means that ttnn takes the call, not that its result is right.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
