"""The commands that write files, run with system calls that fail; what must hold afterwards, whatever failed."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FAULTS: dict[str, tuple[int, ...]] = {
    "write": (errno.ENOSPC, errno.EIO),
    "fsync": (errno.EIO,),
    "rename": (errno.EACCES, errno.ENOSPC),
    "open": (errno.EMFILE, errno.EACCES),
    "mkdir": (errno.EACCES, errno.ENOSPC),
    "fork": (errno.EAGAIN,),
}
MOST_CALLS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line that writes below `out`; what stands in `inputs` is there before."""

    arguments: str
    preload: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()  # files that are copied into `out` before each run
    again: str = ""  # the command line after the failure, where it is not the same
    code: int = 0


@dataclass(slots=True)
class Host:
    """A process that runs commands with faults."""

    process: "subprocess.Popen[str]"
    counts: Counter[str] = field(default_factory=Counter)

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run one command, and give its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


def build_shim(folder: Path) -> Path | None:
    """Compile the shim; None where there is no compiler, or the system cannot preload."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return None
    library = folder / "faults.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(HERE / "faults.c"), "-ldl"]
    return library if subprocess.run(command, check=False, capture_output=True).returncode == 0 else None


@contextmanager
def open_host(shim: Path, preload: Sequence[str] = ()) -> Iterator[Host]:
    """A host that has imported what its commands need."""
    environment = {**os.environ, "LD_PRELOAD": str(shim), "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, str(HERE / "fault_host.py"), "torchstone.cli.main", *preload],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        yield Host(process)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(timeout=600)


def order_for(work: Path, arguments: str, *, call: str = "", nth: int = 0, error: int = 0) -> dict[str, Any]:
    """What the host is asked to run."""
    home = {"HOME": str(work), "TORCHSTONE_HOME": str(work / "out" / "home"), "TTMEM_HOME": str(work / "out" / "home")}
    home["TORCHSTONE_CACHE"] = str(work / "cache")
    return {
        "arguments": arguments.split(), "cwd": str(work), "environment": home, "below": str(work / "out"),
        "call": call, "nth": nth, "errno": error,
    }  # fmt: skip


def fail_every_call(host: Host, command: Command, work: Path, call: str, error: int, *, step: int = 1) -> list[str]:
    """Fail the first, the second, ... call of a function; gives what was wrong afterwards."""
    problems: list[str] = []
    for nth in range(1, MOST_CALLS, step):
        _prepare(command, work)
        answer = host.run(order_for(work, command.arguments, call=call, nth=nth, error=error))
        if not answer.get("fired", True):
            return problems
        host.counts[call] += 1
        where = f"{command.arguments}: {call} number {nth} with {errno.errorcode[error]}"
        problems += [f"{where}: {one}" for one in _wrong(answer, work / "out")]
        repeated = host.run(order_for(work, command.again or command.arguments))
        if repeated.get("code") != command.code:
            problems.append(f"{where}: run again, it ends with {repeated}")
    return problems


def _prepare(command: Command, work: Path) -> None:
    shutil.rmtree(work / "out", ignore_errors=True)
    (work / "out").mkdir()
    for name in command.inputs:
        shutil.copy(work / name, work / "out" / Path(name).name)


def _wrong(answer: dict[str, Any], out: Path) -> Iterator[str]:
    """What must not be after a failure."""
    if "died" in answer:
        yield f"the process died with {answer['died']}"
        return
    if answer["code"] not in (0, 1, 2) or "internal error" in answer["err"] or "Traceback" in answer["err"]:
        yield f"exit code {answer['code']}: {answer['err'][-600:]}"
    if answer["code"] == 2 and "torchstone: error: " not in answer["err"].splitlines()[-1]:
        yield f"no sentence: {answer['err'][-300:]}"
    for path in sorted(out.rglob("*")):
        if path.name.endswith(".part") or path.name.startswith(".tmp"):
            yield f"{path.name} was left behind"
        if path.suffix == ".json" and path.is_file():
            try:
                json.loads(path.read_bytes())
            except ValueError as failure:
                yield f"{path.name} is half written: {failure}"
