"""The commands that write files, run with system calls that fail; what must hold afterwards, whatever failed."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.attacks.written_files import files_of, unfinished_in

HERE = Path(__file__).parent
FAULTS: dict[str, tuple[int, ...]] = {
    "write": (errno.ENOSPC, errno.EIO),
    "fsync": (errno.EIO,),
    "rename": (errno.EACCES, errno.ENOSPC),
    "open": (errno.EMFILE, errno.EACCES),
    "mkdir": (errno.EACCES, errno.ENOSPC),
    "fork": (errno.EAGAIN,),
}
KILL = -1  # instead of an error: the process ends, as by kill -9
COUNT_ALL = 1 << 30  # a call that is never reached: only counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line that writes below `out`; what stands in `inputs` is there before."""

    arguments: str
    inputs: tuple[str, ...] = ()  # files that are copied into `out` before each run
    again: str = ""  # the command line after the failure, where it is not the same
    code: int = 0
    first: str = ""  # a command line that is run before each fault: what it wrote is what may be lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One system call that fails."""

    call: str
    error: int
    nth: int
    in_children: bool = False  # in the processes that the command starts, not in its own

    def __str__(self) -> str:
        where = " of a worker" if self.in_children else ""
        return f"{self.call} number {self.nth}{where} with {errno.errorcode.get(self.error, 'kill -9')}"


@dataclass(slots=True)
class Host:
    """A process that runs commands with faults."""

    process: "subprocess.Popen[str]"
    counts: Counter[str] = field(default_factory=Counter)

    def run(self, work: Path, arguments: str, fault: Fault | None = None) -> dict[str, Any]:
        """Run one command, and give its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(_order(work, arguments, fault)) + "\n")
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


def _order(work: Path, arguments: str, fault: Fault | None) -> dict[str, Any]:
    home = {"HOME": str(work), "TORCHSTONE_HOME": str(work / "out" / "home"), "TTMEM_HOME": str(work / "out" / "home")}
    home["TORCHSTONE_CACHE"] = str(work / "cache")
    mark = work / "fired"
    mark.unlink(missing_ok=True)
    return {
        "arguments": arguments.split(), "cwd": str(work), "environment": home, "below": str(work / "out"),
        "mark": str(mark), "fault": None if fault is None else {
            "call": fault.call, "nth": fault.nth, "errno": fault.error, "in_children": fault.in_children
        },
    }  # fmt: skip


def undisturbed(host: Host, command: Command, work: Path) -> dict[str, object]:
    """The files of a run in which nothing fails."""
    _prepare(host, command, work)
    answer = host.run(work, command.arguments)
    assert answer.get("code") == command.code, answer
    return files_of(work / "out")


def numbers(host: Host, command: Command, work: Path, call: str, *, most: int) -> list[int]:
    """Which calls of a function to fail: all, or the first, the last and some between."""
    _prepare(host, command, work)
    found = host.run(work, command.arguments, Fault(call=call, error=0, nth=COUNT_ALL))["calls"]
    if found <= most:
        return list(range(1, found + 1))
    return sorted({1 + place * (found - 1) // (most - 1) for place in range(most)})


def survive(host: Host, command: Command, work: Path, fault: Fault, expected: dict[str, object]) -> list[str]:
    """Run a command with a fault and then without; gives what was wrong afterwards."""
    before = _prepare(host, command, work)
    answer = host.run(work, command.arguments, fault)
    if not answer.get("fired", True):
        return []
    where = "kill" if fault.error == KILL else fault.call
    host.counts[f"{where} in a worker" if fault.in_children else where] += 1
    killed = fault.error == KILL and not fault.in_children
    problems = list(_after_kill(answer, work / "out") if killed else _wrong(answer, work / "out", before, expected))
    repeated = host.run(work, command.again or command.arguments)
    if repeated.get("code") != command.code:
        problems.append(f"run again, it ends with {repeated.get('code')}: {repeated.get('err')}")
    elif (found := files_of(work / "out")) != expected:
        differ = [name for name in {*found, *expected} if found.get(name) != expected.get(name)]
        problems.append(f"run again, it gives other files: {sorted(differ)}")
    problems += [f"run again, it leaves {name}" for name in unfinished_in(work / "out")]
    return [f"{command.arguments}: {fault}: {one}" for one in problems]


def _prepare(host: Host, command: Command, work: Path) -> dict[str, object]:
    shutil.rmtree(work / "out", ignore_errors=True)
    (work / "out").mkdir()
    for name in command.inputs:
        copy = shutil.copytree if (work / name).is_dir() else shutil.copy
        copy(work / name, work / "out" / name)
    if command.first:
        answer = host.run(work, command.first)
        assert answer.get("code") == command.code, answer
    return files_of(work / "out")


def _after_kill(answer: dict[str, Any], out: Path) -> Iterator[str]:
    """What must not be after a kill: files that look complete and are not."""
    if answer.get("died") != signal.SIGKILL:
        yield f"it was not killed: {answer}"
    try:
        files_of(out)
    except (ValueError, EOFError, OSError) as failure:
        yield f"a file is half written: {failure}"


def _wrong(answer: dict[str, Any], out: Path, before: dict[str, object], expected: dict[str, object]) -> Iterator[str]:
    """What must not be after a failure."""
    if "died" in answer:
        yield f"the process died with {answer['died']}"
        return
    if answer["code"] not in (0, 1, 2) or "internal error" in answer["err"] or "Traceback" in answer["err"]:
        yield f"exit code {answer['code']}: {answer['err'][-600:]}"
    if answer["code"] == 2 and "torchstone: error: " not in answer["err"].splitlines()[-1]:
        yield f"no sentence: {answer['err'][-300:]}"
    yield from (f"{name} was left behind" for name in unfinished_in(out))
    try:
        found = files_of(out)
    except (ValueError, EOFError, OSError) as failure:
        yield f"a file is half written: {failure}"
        return
    if answer["code"] == 0:
        yield from (f"it succeeded without {name}" for name in expected if name not in found)
    if answer["code"] == 2 and not (before.keys() <= found.keys() or expected.keys() <= found.keys()):
        yield f"neither the old files nor the new ones are there: {sorted(found)}"
