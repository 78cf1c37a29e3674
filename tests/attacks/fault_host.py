"""Runs torchstone commands, each in its own fork, with a system call that fails (faults.c) or a signal at any time.

Reads a line of JSON for each run from stdin and answers with one. Whatever the commands import stays imported, so that
a run costs a fork and not a start of Python; where the order says so, the zygote of its workers is a fork as well.
"""

import ctypes
import gc
import io
import json
import os
import runpy
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGES = ("torchstone", "msgspec", "sqlalchemy", "jinja2", "markupsafe", "sqlite3", "rich", "torch", "numpy")


NEVER = 1 << 30  # a call that is not reached
PATIENCE_S = 60.0  # that the processes of a command may take to leave after its end, on a busy machine
HANG_S = 600.0  # that a command may take, on a busy machine
SENT = (signal.SIGINT, signal.SIGTERM)
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


class ForkedPython(subprocess.Popen[bytes]):
    """A Python script in a fork of this process, which has imported torch; it else runs what a fresh one runs."""

    def _execute_child(self, args: list[str], *rest: Any) -> None:
        words = args[2:] if args[1:2] == ["-u"] else args[1:]
        if args[0] != sys.executable or not words or not words[0].endswith((".py", "-m")):
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        (_, _, _, pass_fds, cwd, env, _, _, _, stdin, stdin_far, stdout_far, stdout, stderr_far, stderr, *_) = rest
        # what runs at a fork would swallow an interrupt; a fresh interpreter is started without it
        signal.pthread_sigmask(signal.SIG_BLOCK, SENT)
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SENT)
                os.setsid()
                os.chdir(cwd or ".")
                variables = dict(os.environ if env is None else env)
                code = be_script(words, variables, (stdin, stdout, stderr), set(pass_fds))
            finally:
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SENT)
        self._child_created = True
        self._close_pipe_fds(stdin, stdin_far, stdout_far, stdout, stderr_far, stderr)  # type: ignore[attr-defined]


def be_script(arguments: list[str], variables: dict[str, str], streams: tuple[int, ...], kept: set[int]) -> int:
    """Let go of what belongs to the command (locks above all), and run a script."""
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    shim.fault_arm(b"/", b"none", NEVER, 0)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor if descriptor >= 0 else number, number)
    for path in list(Path("/proc/self/fd").iterdir()):
        if int(path.name) > 2 and int(path.name) not in kept:
            with suppress(OSError):
                os.close(int(path.name))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(variables)
    if order := variables.get("FAULT_IN_CHILDREN"):  # a fresh one is armed when the shim is loaded
        below, call, nth, error = order.rsplit("|", 3)
        shim.fault_arm(below.encode(), call.encode(), int(nth), int(error))
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    sys.argv = arguments[arguments[0] == "-m" :]
    try:
        if arguments[0] == "-m":
            sys.modules.pop(arguments[1], None)
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def warm_up(loaded: list[str]) -> None:
    """Import what a run imported: the next ones then find it."""
    for name in loaded:
        with suppress(ImportError, AttributeError, RuntimeError):
            import_module(name)
    if (pages := sys.modules.get("torchstone.report.section")) is not None:
        vars(pages)["_LEVEL"] = 1  # half the time of a short command is that of packing its page well


def warm_up_torch() -> None:
    """Let torch do once what it does when it first exports and traces a module, which takes longer than the rest."""
    if "torchstone.backends.export" in sys.modules:
        import torch

        from torchstone.backends.export import exported_program, import_exporter
        from torchstone.backends.graphs import dynamo_graphs

        torch.manual_seed(0)
        import_exporter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported_program(torch.nn.Linear(1, 1), (torch.zeros(1, 1),), {}).program.run_decompositions()
            dynamo_graphs(torch.nn.Linear(1, 1), (torch.zeros(1, 1),), {})


def keep_steps(out: Path, steps: Path) -> None:
    """Copy each file that is put in place below `out`, by forks as well, to a folder of its own."""
    steps.mkdir()
    numbers = count()

    def renaming(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "os.rename":
            return
        target = Path.cwd() / os.fsdecode(arguments[1])
        if target.is_relative_to(out):
            copy = steps / f"{os.getpid()}-{next(numbers)}" / target.relative_to(out)
            copy.parent.mkdir(parents=True)
            shutil.copy(arguments[0], copy)

    sys.addaudithook(renaming)


class CodePaths:
    """Where each counted call comes from: the lines of Python that led to it."""

    def __init__(self, shim: ctypes.CDLL) -> None:
        self._numbers: dict[tuple[tuple[str, int], ...], int] = {}
        self.seen: list[int] = []  # of each call, the number of its code path
        self._watch = ctypes.CFUNCTYPE(None)(self._note)  # lives as long as the shim may call it
        shim.fault_watch(self._watch)

    def _note(self) -> None:
        lines: list[tuple[str, int]] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            lines.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        self.seen.append(self._numbers.setdefault(tuple(lines), len(self._numbers)))


def run_once(order: dict[str, Any], answer: int) -> None:
    """Run one command line in this process, and write what came of it."""
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    from torchstone.cli.main import run

    os.chdir(order["cwd"])
    os.environ.update(order["environment"])
    tempfile.tempdir = None  # TMPDIR has changed
    if order["warm_workers"]:
        subprocess.Popen = ForkedPython  # type: ignore[assignment, misc]
    if order["steps"]:
        keep_steps(Path(order["cwd"]) / "out", Path(order["steps"]))
    fault = order["fault"]
    if fault and fault["in_children"]:
        parts = (order["below"], fault["call"], fault["nth"], fault["errno"])
        os.environ["FAULT_IN_CHILDREN"] = "|".join(map(str, parts))
        os.environ["FAULT_MARK"] = order["mark"]
    elif fault:
        shim.fault_arm(order["below"].encode(), fault["call"].encode(), fault["nth"], fault["errno"])
    paths = CodePaths(shim) if fault and fault["nth"] == NEVER else None
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(order["arguments"])
    fired, calls = bool(shim.fault_fired()), shim.fault_seen()
    shim.fault_arm(b"/", b"none", NEVER, 0)
    document = {
        "code": code,
        "loaded": [name for name in sys.modules if name.startswith(PACKAGES)],
        "fired": fired or Path(order["mark"]).exists(),
        "calls": calls,
        "code_paths": [] if paths is None else paths.seen,
        "out": out.getvalue()[-4000:],
        "err": err.getvalue()[-4000:],
    }
    os.write(answer, json.dumps(document).encode())


def say(line: str) -> None:
    """One line to whoever gives the orders."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def children_of(pid: int) -> list[int]:
    """The processes that a process started and that are there."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found


def descendants_of(pid: int) -> list[int]:
    """A process's children, theirs, and so on."""
    children = children_of(pid)
    return children + [below for child in children for below in descendants_of(child)]


def send_signal(pid: int, order: dict[str, Any], pipe: int) -> list[str]:
    """Wait for the time that the order names, then signal what it names; gives the names of what was signalled."""
    if select.select([pipe], [], [], order["after_s"])[0]:
        return []  # it was over before
    below = descendants_of(pid)
    match order["target"]:
        case "parent":
            chosen = [pid]
        case "everything":
            chosen = [*below, pid]
        case "group":
            chosen = [one for one in (pid, *below) if is_in_group(one, pid)]
        case _:
            chosen = [below[order["which"] % len(below)]] if below else []
    for one in chosen:
        with suppress(ProcessLookupError):
            os.kill(one, order["number"])
    return [f"{one}" for one in chosen]


def is_in_group(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return False


def wait_for_orphans() -> list[str]:
    """Collect what the command started until all of it is gone; gives what stays."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return []
    left = descendants_of(os.getpid())
    names = [f"{pid}: {Path(f'/proc/{pid}/cmdline').read_bytes()[:300]!r}" for pid in left]
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return names


def main() -> None:
    """Answer orders until stdin ends."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # what a command leaves behind becomes a child of this process
    warm_up(sys.argv[1:])
    warm_up_torch()
    say("ready")
    for line in sys.stdin:
        order = json.loads(line)
        gc.freeze()  # a fork that collects garbage would copy all pages of what is imported
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.close(reading)
            os.set_inheritable(writing, False)  # noqa: FBT003 - it takes no names
            run_once(order, writing)
            os._exit(0)
        os.close(writing)
        signalled = send_signal(pid, order["signal"], reading) if order["signal"] else []
        hung = not select.select([reading], [], [], HANG_S)[0]
        if hung:
            os.kill(pid, signal.SIGKILL)
        with os.fdopen(reading, "rb") as pipe:
            answer = json.loads(pipe.read() or b"{}")
        _, status = os.waitpid(pid, 0)
        if not answer:
            answer = {"died": status, "hung": hung}
        elif not order["fault"] and not order["signal"]:
            warm_up(answer["loaded"])
        say(json.dumps({**answer, "signalled": signalled, "orphans": wait_for_orphans()}))


if __name__ == "__main__":
    main()
