"""How fast memory logs are read, beside `grep -c` and a bare loop over the lines of the same file.

    PYTHONPATH=src:. python benchmarks/memory_parse.py [OPS ...]

Passes of the first kind of log repeat byte for byte. Those of the second do not: many graphs run in a random order
around memory that changes, so that an op line and the readings behind it come in ever new pairs. Each reader runs in a
process of its own; CPU seconds are user and system time, the best of three, without the start of Python. Memory is the
highest resident size of the parsing process.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import process_time

from tests.memory.log_generator.long import differing_log, long_log

DEFAULT_OPS = (10_000, 100_000, 1_000_000)
LOGS = {"repeat": long_log, "differ": differing_log}
RUNS = 3


def main() -> None:
    """Print one row per kind of log and size."""
    sizes = [int(text) for text in sys.argv[1:]] or DEFAULT_OPS
    titles = (f"{title:>7}" for title in ("grep s", "loop s", "parse s", "MB/s", "x grep", "x loop", "RSS MB"))
    print(f"{'passes':<7} {'ops':>10} {'MB':>7}", *titles)
    with tempfile.TemporaryDirectory() as folder:
        for name, make in LOGS.items():
            for ops in sizes:
                path = Path(folder) / f"{ops}.log"
                with path.open("wb") as file:
                    file.writelines(make(ops))
                print(f"{name:<7}", row(path, ops), flush=True)
                path.unlink()


def row(path: Path, ops: int) -> str:
    """Measure one log."""
    size_mb = path.stat().st_size / 1e6
    grep_s = min(grep(path) for _ in range(RUNS))
    loop_s = min(in_child("loop", path)["cpu_s"] for _ in range(RUNS))
    parsed = [in_child("parse", path) for _ in range(RUNS)]
    best = min(parsed, key=lambda one: one["cpu_s"])
    speed = size_mb / best["cpu_s"]
    return (
        f"{ops:>10,} {size_mb:>7.1f} {grep_s:>7.3f} {loop_s:>7.3f} {best['cpu_s']:>7.3f} {speed:>7.0f} "
        f"{best['cpu_s'] / grep_s:>7.1f} {best['cpu_s'] / loop_s:>7.1f} {best['rss_mb']:>7.0f}"
    )


def grep(path: Path) -> float:
    """CPU seconds of counting op lines."""
    before = getrusage(RUSAGE_CHILDREN)
    # not to /dev/null: grep would stop at the first match
    subprocess.run(["grep", "-c", "Executing operation", str(path)], check=True, capture_output=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_child(what: str, path: Path) -> dict[str, float]:
    """Measure this file's own function in a fresh process."""
    command = [sys.executable, __file__, "--child", what, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, env=os.environ)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def child(what: str, path: Path) -> None:
    """Read the log once and tell what it took."""
    from torchstone.memory.read_log import parse_log

    start = process_time()
    if what == "parse":
        parse_log(path)
    else:
        with path.open("rb") as file:
            for _ in file:
                pass
    print(json.dumps({"cpu_s": process_time() - start, "rss_mb": highest_rss_mb()}))


def highest_rss_mb() -> float:
    """The highest resident size of this program; getrusage would count the process that it was forked from, too."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
