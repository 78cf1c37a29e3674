"""How long commands take, as multiples of starting Python: first and second answers.

    PYTHONPATH=src python benchmarks/commands.py [--runs 5]

Every command is a process of its own, as a user starts it, with a cache folder that is empty at first. Times are CPU
seconds of the process and all its children, the best of the runs, so that a busy machine changes little; starting
Python (`python -c pass`) is measured between the runs, and the ratio is to its least. `analyze` runs once. Modules are
compiled once, into a folder of the benchmark, as an installation has them.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

BARE = ["-c", "pass"]
IMPORT = ["-c", "import torchstone"]
LARGE = "meta-llama/Llama-3.1-405B"
FORMULAS_ALONE = ("--by", "formula", "--no-trace")
ANALYZE = ("analyze", "tiny:bert", "--quick")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/compiled"
        first = {"XDG_CACHE_HOME": f"{folder}/none", "TORCHSTONE_CACHE": "off"}
        kept = {"XDG_CACHE_HOME": f"{folder}/kept"}
        rows = [
            ("import torchstone", IMPORT, first, runs),
            ("torchstone --version", _command("--version"), first, runs),
            ("cost of a path that does not exist", _command("cost", "no/such/file.py::net"), first, runs),
            (f"cost {LARGE}, first, as it ships", _command("cost", LARGE), {"XDG_CACHE_HOME": f"{folder}/a"}, runs),
            (f"cost {LARGE} --by formula --no-trace", _command("cost", LARGE, *FORMULAS_ALONE), first, runs),
            ("inspect gpt2, first, as it ships", _command("inspect", "gpt2"), {"XDG_CACHE_HOME": f"{folder}/b"}, runs),
            ("cost tiny:bert, captured", _command("cost", "tiny:bert"), first, 2),
            ("cost tiny:bert, again", _command("cost", "tiny:bert"), kept, runs),
            ("inspect tiny:bert, again", _command("inspect", "tiny:bert"), kept, runs),
            ("cost tiny:bert --by formula, again", _command("cost", "tiny:bert", "--by", "formula"), kept, runs),
            ("cost gpt2 --batch-size 3, again", _command("cost", "gpt2", "--batch-size", "3"), kept, runs),
            ("analyze tiny:bert --quick, first", _command(*ANALYZE, "--dir", f"{folder}/d"), first, 1),
        ]  # fmt: skip
        for _, command, environment, _ in rows:
            if environment is kept:
                _seconds(command, kept)  # so that there is something to answer from
        bare = min(_seconds(BARE, first) for _ in range(3 * runs))
        print(f"{'command':<58} {'CPU':>8} {'of a bare start':>16}")
        print(f"{'python -c pass':<58} {bare:7.3f}s {'1':>16}")
        for name, command, environment, count in rows:
            least = min(_seconds(command, environment) for _ in range(count))
            bare = min(bare, _seconds(BARE, first))
            print(f"{name:<58} {least:7.3f}s {least / bare:15.1f}x", flush=True)


def _command(*words: str) -> list[str]:
    return ["-m", "torchstone", *words]


def _seconds(command: list[str], environment: dict[str, str]) -> float:
    """CPU seconds of one process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = {name: value for name, value in os.environ.items() if name != "TORCHSTONE_CACHE"}
    with tempfile.TemporaryDirectory() as here:
        subprocess.run(
            [sys.executable, *command], env={**own, "PYTHONPATH": _sources(), **environment}, cwd=here, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _sources() -> str:
    return str(Path(__file__).resolve().parents[1] / "src")


if __name__ == "__main__":
    main()
