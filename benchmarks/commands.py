"""How long commands take, as multiples of starting Python: first and second answers.

    PYTHONPATH=src python benchmarks/commands.py [--runs 5]

Every command is a process of its own, as a user starts it, with a cache folder that is empty at first. Times are CPU
seconds of the process and all its children, the best of the runs, so that a busy machine changes little; starting
Python (`python -c pass`) is measured between the runs, and the ratio is to its least. `analyze` runs once. Modules are
compiled once, into a folder of the benchmark, as an installation has them.
"""

import argparse
import contextlib
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
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "tiny_transformer.py"
SECOND = (
    "inspect tiny:bert --operators",
    "cost tiny:bert --by formula",
    "cost tiny:bert --by line",
    "cost tiny:bert --hardware n150",
    "cost tiny:gpt2 --phase decode",
    "formula list",
    "formula show torch.nn.Linear",
    "formula eval torch.nn.Linear batch_elements=2 input_features=3 output_features=4",
)
OF_A_FILE = (
    "inspect FILE.py::FN --operators",
    "cost FILE.py::FN",
    "cost FILE.py::FN --by formula",
    "cost FILE.py::FN --by line",
    "cost FILE.py::FN --hardware n150",
)
LIMIT = 15  # times a bare start, for second answers
COVERAGE = "ops coverage tiny:bert --backend eager"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # what code does may depend on the folder
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
            ("cost gpt2 --batch-size 3, again", _command("cost", "gpt2", "--batch-size", "3"), kept, runs),
            *((f"{question}, again", _command(*question.split()), kept, runs) for question in SECOND),
            (f"{COVERAGE}, again", _command(*COVERAGE.split(), "--db", str(_database(folder))), kept, runs),
            *((f"{question}, again", _command(*_of_file(question)), kept, runs) for question in OF_A_FILE),
            ("analyze tiny:bert --quick, first", _command(*ANALYZE, "--dir", f"{folder}/d"), first, 1),
        ]  # fmt: skip
        for _, command, environment, _ in rows:
            if environment is kept:
                _seconds(command, kept)  # so that there is something to answer from
        bare = min(_seconds(BARE, first) for _ in range(3 * runs))
        print(f"{'command':<74} {'CPU':>8} {'of a bare start':>16}")
        print(f"{'python -c pass':<74} {bare:7.3f}s {'1':>16}")
        slow: list[str] = []
        for name, command, environment, count in rows:
            least = min(_seconds(command, environment) for _ in range(count))
            bare = min(bare, _seconds(BARE, first))
            slow += [name] if name.endswith(", again") and least > LIMIT * bare else []
            print(f"{name:<74} {least:7.3f}s {least / bare:15.1f}x", flush=True)
        print(f"second answers above {LIMIT} times a bare start: {', '.join(slow) or 'none'}")


def _command(*words: str) -> list[str]:
    return ["-m", "torchstone", *words]


def _of_file(question: str) -> list[str]:
    return question.replace("FILE.py::FN", f"{EXAMPLE}::load_model").split()


def _database(folder: str) -> Path:
    """A database with the calls of a model, older than the moment in which a file may change twice unseen."""
    path = Path(folder) / "configurations.db"
    if not path.exists():
        _seconds(_command("trace", "tiny:bert", "--db", str(path)), {"TORCHSTONE_CACHE": "off"})
        os.utime(path, ns=(10**18, 10**18))
    return path


def _seconds(command: list[str], environment: dict[str, str]) -> float:
    """CPU seconds of one process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = {name: value for name, value in os.environ.items() if name != "TORCHSTONE_CACHE"}
    subprocess.run(
        [sys.executable, *command], env={**own, "PYTHONPATH": _sources(), **environment}, check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _sources() -> str:
    return str(Path(__file__).resolve().parents[1] / "src")


if __name__ == "__main__":
    main()
