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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.attacks.written_files import files_of, unfinished_in
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS

HERE = Path(__file__).parent
FAULTS: dict[str, tuple[int, ...]] = {
    "write": (errno.ENOSPC, errno.EIO),
    "fsync": (errno.EIO,),
    "rename": (errno.EACCES, errno.ENOSPC),
    "open": (errno.EMFILE, errno.EACCES),
    "mkdir": (errno.EACCES, errno.ENOSPC),
    "fork": (errno.EAGAIN,),
    "unlink": (errno.EACCES, errno.EIO),
    "truncate": (errno.EIO,),
    "chmod": (errno.EPERM,),
    "lock": (errno.ENOLCK, errno.EIO),
    "read": (errno.EIO,),
    "stat": (errno.EACCES, errno.EIO),
    "list": (errno.EACCES, errno.EIO),
    "mmap": (errno.ENOMEM,),
}
KILL = -1  # instead of an error: the process ends, as by kill -9
_CHANGED = ("out", "cache", "tmp")  # folders that a command writes to; all else is not touched
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
    below: str = "."  # of what files; inputs, results, the cache and temporary files are below the working directory

    def __str__(self) -> str:
        where = " of a worker" if self.in_children else ""
        return f"{self.call} number {self.nth}{where} with {errno.errorcode.get(self.error, 'kill -9')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A signal at some time to the processes of a command."""

    number: int
    target: str  # parent, group (as Ctrl-C in a terminal), everything, or worker: any one that the command started
    after_s: float
    which: int = 0  # of the workers

    def __str__(self) -> str:
        return f"{signal.Signals(self.number).name} to the {self.target} after {self.after_s:.2f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What the files may be after a failure, by name."""

    before: dict[str, object]
    expected: dict[str, object]  # of an undisturbed run
    steps: dict[str, list[object]]  # what later steps of an undisturbed run replace

    def allow(self, name: str, content: object) -> bool:
        """Whether a file is the old one, the new one, or that of an earlier step."""
        return content in (self.before.get(name), self.expected.get(name), *self.steps.get(name, ()))


@dataclass(slots=True)
class Host:
    """A process that runs commands with faults."""

    process: "subprocess.Popen[str]"
    counts: Counter[str] = field(default_factory=Counter)
    steps: dict[str, list[object]] = field(default_factory=dict)  # by file: what an undisturbed run replaces later on
    warm_workers: bool = False  # whether the zygote of the workers is a fork, too

    def run(
        self,
        work: Path,
        arguments: str,
        fault: Fault | None = None,
        signalled: Signal | None = None,
        *,
        steps: str | None = None,
    ) -> dict[str, Any]:
        """Run one command, and give its answer; copies of the files that it puts in place go to the folder `steps`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = _order(work, arguments, fault)
        order |= {"signal": None if signalled is None else asdict(signalled), "warm_workers": self.warm_workers}
        order["steps"] = steps
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


def _order(work: Path, arguments: str, fault: Fault | None) -> dict[str, Any]:
    home = {"HOME": str(work), "TORCHSTONE_HOME": str(work / "out" / "home"), "TTMEM_HOME": str(work / "out" / "home")}
    home |= {"TORCHSTONE_CACHE": str(work / "cache"), "TMPDIR": str(work / "tmp")}
    mark = work / "fired"
    mark.unlink(missing_ok=True)
    return {
        "arguments": arguments.split(), "cwd": str(work), "environment": home,
        "below": str(work / "out" if fault is None else work / fault.below),
        "mark": str(mark), "fault": None if fault is None else {
            "call": fault.call, "nth": fault.nth, "errno": fault.error, "in_children": fault.in_children
        },
    }  # fmt: skip


def undisturbed(host: Host, command: Command, work: Path) -> dict[str, object]:
    """The files of a run in which nothing fails.

    It is the second one: after the first, the host has imported what the command needs, and a capture names the
    versions of what its process has imported.
    """
    for _ in range(2):
        _prepare(host, command, work)
        shutil.rmtree(work / "steps", ignore_errors=True)
        answer = host.run(work, command.arguments, steps=str(work / "steps"))
        assert answer.get("code") == command.code, answer
    host.steps.clear()
    for folder in sorted((work / "steps").iterdir()):
        for name, content in files_of(folder).items():
            host.steps.setdefault(name, []).append(content)
    return files_of(work / "out")


def calls_of(host: Host, command: Command, work: Path, call: str, *, below: str = ".") -> list[int]:
    """The calls of a function by an undisturbed run: of each, the number of the code path that led to it."""
    _prepare(host, command, work)
    answer = host.run(work, command.arguments, Fault(call=call, error=0, nth=COUNT_ALL, below=below))
    paths: list[int] = answer["code_paths"]
    assert len(paths) == answer["calls"], "a call was not seen"
    return paths


def numbers(host: Host, command: Command, work: Path, call: str, *, most: int, below: str = ".") -> list[int]:
    """Which calls of a function to fail: all, or the first, the last and some between."""
    found = len(calls_of(host, command, work, call, below=below))
    if found <= most:
        return list(range(1, found + 1))
    return sorted({1 + place * (found - 1) // (most - 1) for place in range(most)})


def survive(host: Host, command: Command, work: Path, fault: Fault, expected: dict[str, object]) -> list[str]:
    """Run a command with a fault and then without; gives what was wrong afterwards."""
    return attempt(host, command, work, fault, expected) or []


def attempt(host: Host, command: Command, work: Path, fault: Fault, expected: dict[str, object]) -> list[str] | None:
    """The same; None where the command ended without the call that should fail."""
    before = _prepare(host, command, work)
    answer = host.run(work, command.arguments, fault)
    if not answer.get("fired", True):
        return None
    where = "kill" if fault.error == KILL else fault.call
    host.counts[f"{where} in a worker" if fault.in_children else where] += 1
    killed = fault.error == KILL and not fault.in_children
    may_lack = fault.in_children and command.code == EXIT_FINDINGS
    versions = Versions(before=before, expected=expected, steps=host.steps)
    problems = list(
        _after_kill(answer, work / "out")
        if killed
        else _wrong(answer, command, work / "out", versions, may_lack=may_lack)
    )
    problems += _left_running(answer)
    problems += _run_again(host, command, work, expected)
    return [f"{command.arguments}: {fault}: {one}" for one in problems]


def survive_signal(host: Host, command: Command, work: Path, sent: Signal, expected: dict[str, object]) -> list[str]:
    """Run a command, send it a signal, and run it again; gives what was wrong afterwards."""
    _prepare(host, command, work)
    answer = host.run(work, command.arguments, signalled=sent)
    if not answer["signalled"]:
        return []
    host.counts[f"{signal.Signals(sent.number).name} to the {sent.target}"] += 1
    problems = [*_left_running(answer), *_unreadable(work / "out")]
    if sent.target == "worker":  # the command itself was not signalled
        refused = answer.get("code") == EXIT_BAD_INPUT and "exit code -9" in answer["err"]
        if refused:  # the process that lists the backends; what was killed is said in a sentence
            versions = Versions(before={}, expected=expected, steps=host.steps)
            problems += _wrong(answer, command, work / "out", versions)
        elif answer.get("code") != command.code:
            problems.append(f"it ends with {answer.get('code', answer.get('died'))}: {answer.get('err')}")
        else:
            problems += _differences(work, expected)
    elif sent.number != signal.SIGKILL:
        problems += _after_interruption(answer, work, sent)
    problems += _run_again(host, command, work, expected)
    return [f"{command.arguments}: {sent}: {one}" for one in problems]


def _after_interruption(answer: dict[str, Any], work: Path, sent: Signal) -> Iterator[str]:
    """A command that could tidy up: it says what happened, in one line, and leaves nothing unfinished."""
    if answer.get("died") == sent.number:  # before or after the command proper: nothing was written yet, or all
        return
    if answer.get("code") not in (0, 1, 128 + sent.number):
        yield f"it ends with {answer}"
    if "Traceback" in answer.get("err", ""):
        yield f"it prints a traceback: {answer['err'][-2000:]}"
    yield from (f"{name} was left behind" for name in unfinished_in(work / "out"))
    yield from (f"{path.name} was left behind" for path in _temporary(work))


def _temporary(work: Path) -> list[Path]:
    return [path for path in (work / "tmp").iterdir() if "torchstone" in path.name]


def _left_running(answer: dict[str, Any]) -> list[str]:
    return [f"a process was left behind: {one}" for one in answer["orphans"]]


def _run_again(host: Host, command: Command, work: Path, expected: dict[str, object]) -> Iterator[str]:
    repeated = host.run(work, command.again or command.arguments)
    if repeated.get("code") != command.code:
        yield f"run again, it ends with {repeated.get('code')}: {repeated.get('out')}{repeated.get('err')}"
    else:
        yield from (f"run again, {one}" for one in _differences(work, expected))
    yield from (f"run again, it leaves {name}" for name in unfinished_in(work / "out"))
    yield from (f"run again, it leaves {path.name}" for path in _temporary(work))


def _differences(work: Path, expected: dict[str, object]) -> Iterator[str]:
    found = files_of(work / "out")
    if found != expected:
        differ = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
        yield f"it gives other files: {differ}"


def _prepare(host: Host, command: Command, work: Path) -> dict[str, object]:
    """What is there before each run: the inputs and what the first command left, which is run once and then copied."""
    kept = work / "before"
    if not kept.is_dir():
        _empty(work)
        for name in command.inputs:
            copy = shutil.copytree if (work / name).is_dir() else shutil.copy
            copy(work / name, work / "out" / name)
        for _ in range(2 * bool(command.first)):  # a capture names the versions of what its process has imported
            _empty(work)
            answer = host.run(work, command.first)
            assert answer.get("code") == command.code, answer
        for name in _CHANGED:
            shutil.copytree(work / name, kept / name)
    _empty(work)
    for name in _CHANGED:
        shutil.copytree(kept / name, work / name, dirs_exist_ok=True)
    return files_of(work / "out")


def _empty(work: Path) -> None:
    for name in _CHANGED:
        shutil.rmtree(work / name, ignore_errors=True)
        (work / name).mkdir()


def _after_kill(answer: dict[str, Any], out: Path) -> Iterator[str]:
    """What must not be after a kill: files that look complete and are not."""
    if answer.get("died") != signal.SIGKILL or answer.get("hung"):
        yield f"it was not killed: {answer}"
    yield from _unreadable(out)


def _unreadable(out: Path) -> Iterator[str]:
    try:
        files_of(out)
    except (ValueError, EOFError, OSError) as failure:
        yield f"a file is half written: {failure}"


def _wrong(
    answer: dict[str, Any], command: Command, out: Path, versions: Versions, *, may_lack: bool = False
) -> Iterator[str]:
    """What must not be after a failure; exit code 1 also says that a part was not judged (`may_lack`)."""
    if "died" in answer:
        yield "it hangs" if answer.get("hung") else f"the process died with {answer['died']}"
        return
    if (
        answer["code"] not in (0, 1, 2)
        or "internal error" in answer["out"] + answer["err"]
        or "Traceback" in answer["err"]
    ):
        yield f"exit code {answer['code']}: {answer['out'][-600:]}{answer['err'][-600:]}"
    if answer["code"] == 2 and not answer["err"].splitlines()[-1].startswith(("torchstone: error: ", "Error: ")):
        yield f"no sentence: {answer['err'][-300:]}"
    yield from (f"{name} was left behind" for name in unfinished_in(out))
    try:
        found = files_of(out)
    except (ValueError, EOFError, OSError) as failure:
        yield f"a file is half written: {failure}"
        return
    expected = versions.expected
    if answer["code"] == command.code and not may_lack:
        yield from (f"it succeeded with another {name}" for name in expected if found.get(name) != expected[name])
    if answer["code"] == EXIT_BAD_INPUT:
        yield from (f"{name} is gone" for name in versions.before if name not in found)
        for name, content in found.items():
            if not versions.allow(name, content):
                yield f"{name} is neither the old file nor the new one"
