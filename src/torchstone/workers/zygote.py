"""The process that starts one process per task. Started by its path, in an interpreter that need not have torchstone.

It imports and sets up once, then forks: a copy of a process that has torch loaded costs milliseconds, a fresh one
seconds. Where the environment cannot be forked it starts fresh interpreters instead, and those set themselves up.

Over the control socket come {"start": lane} with the two descriptors of the lane (channel, output), {"kill": lane} and
{"show": lane}; back go {"started": lane}, {"not_started": lane}, {"exited": lane} and, first of all, {"ready": pid} or
{"failed": step}. When the socket closes, this process kills all it started and leaves. Needs the standard library only.
"""

from __future__ import (
    annotations,  # so that an interpreter that is too old gets far enough to be refused with a sentence
)

import contextlib
import faulthandler
import gc
import importlib.util
import json
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

OLDEST_PYTHON = (3, 10)
TIDYING_S = 2.0
SPARE_PROCESSES = 4_096  # that this user may have more of than at the start before tasks are refused new ones
_MOST_DESCRIPTORS = 32
_FRESH_LANE = "lane"
_PACKAGE = Path(__file__).parent.parent


def main() -> None:
    """Set up and serve, or be a fresh lane; which one, and over which descriptors, the arguments say."""
    _forget_own_folder()
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"{sys.executable} is Python {sys.version.split()[0]}; workers need 3.10 or newer")
    _register_package()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # a task past its deadline shows where it hangs
    if sys.argv[1] == _FRESH_LANE:
        _be_fresh_lane(socket.socket(fileno=int(sys.argv[2])))
        return
    from torchstone.workers import containment

    control = socket.socket(fileno=int(sys.argv[1]))
    orders = json.loads(_first_line(control))
    containment.die_with_parent(orders["parent"])
    containment.adopt_orphans()
    # Die with the parent while setting up: imports take long, and nothing else would stop them. After `outlive_parent`
    # the closed control socket is the sign to leave, so that every lane is killed before this process goes.
    if orders["forks"] and not _set_up(control, orders):
        return
    for name in orders["forget"]:  # it has had its effect, and is not for the programs that tasks start
        os.environ.pop(name, None)
    containment.outlive_parent()
    Zygote(control, forks=orders["forks"]).serve()


def _forget_own_folder() -> None:
    """A script's folder leads sys.path; this one's files must not shadow anybody's modules."""
    own = str(Path(__file__).parent)
    sys.path[:] = [entry for entry in sys.path if entry != own]


def _register_package() -> None:
    """Make this torchstone importable, and nothing else of the environment that it is installed in."""
    spec = importlib.util.spec_from_file_location(
        "torchstone", _PACKAGE / "__init__.py", submodule_search_locations=[str(_PACKAGE)]
    )
    assert spec is not None  # noqa: S101 - the file is our own
    assert spec.loader is not None  # noqa: S101 - and so is its kind
    package = importlib.util.module_from_spec(spec)
    sys.modules["torchstone"] = package
    spec.loader.exec_module(package)


def _first_line(connection: socket.socket) -> bytes:
    """One line and not a byte more: the rest belongs to whoever reads next."""
    line = bytearray()
    while not line.endswith(b"\n"):
        peeked = connection.recv(1 << 16, socket.MSG_PEEK)
        if not peeked:
            sys.exit("the other side hung up before it said what to do")
        end = peeked.find(b"\n")
        line += connection.recv(len(peeked) if end < 0 else end + 1)
    return bytes(line)


def _set_up(connection: socket.socket, orders: dict[str, Any]) -> bool:
    """Import and set up as requested; report a failure to the parent."""
    from torchstone.workers import child, containment

    containment.show_output_line_by_line()
    sys.path[:0] = orders["extra_paths"]
    step = ""
    gc.disable()  # imports make many objects and little garbage: torch takes a fifth less time without collections
    try:
        for name in orders["preload"]:
            step = f"importing {name}"
            importlib.import_module(name)
        if "torch" in sys.modules:  # one thread each: there are as many tasks at once as there should be threads
            sys.modules["torch"].set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        if orders["setup"]:
            step = f"calling {orders['setup']}"
            child.resolve(orders["setup"])(orders["setup_payload"])
    except BaseException as error:  # noqa: BLE001 - the border of the process: the other side tells the user
        containment.flush_output()
        _tell(connection, {"failed": step} | child.describe_error(error))
        return False
    finally:
        gc.enable()
    return True


def _tell(connection: socket.socket, message: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the other side is gone; the next read says so
        connection.sendall(json.dumps(message).encode() + b"\n")


def _be_fresh_lane(channel: socket.socket) -> None:
    from torchstone.workers import child

    if _set_up(channel, json.loads(_first_line(channel))):
        child.run_tasks(channel)
    os._exit(0)


class Zygote:
    """Starts lanes, reports their ends, and leaves nothing behind."""

    def __init__(self, control: socket.socket, *, forks: bool) -> None:
        from torchstone.workers import containment

        self._control = control
        self._forks = forks
        self._lane_of: dict[int, int] = {}  # pid of a running process -> its lane
        self._descriptors: list[int] = []  # received, not yet given to a lane
        self._unread = b""
        others = containment.count_processes()
        self._most_processes = None if others is None else others + SPARE_PROCESSES
        self._companions = set(_children())  # that the set-up started, for as long as this process lives
        self._woken, self._waker = os.pipe()

    def serve(self) -> None:
        """Serve requests until the parent hangs up."""
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        # The end of a lane must wake the selector, not run code in between: the handler does nothing, and the wakeup
        # descriptor turns the signal into a byte for `select`. A full pipe loses no end: all are collected at once.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        gc.collect()
        gc.freeze()  # the collector leaves these objects, and the pages they share with every copy, alone
        _tell(self._control, {"ready": os.getpid(), "threads": _count_threads()})
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            try:
                listening = True
                while listening:
                    ready = {key.fileobj for key, _ in selector.select()}
                    if self._woken in ready:
                        self._report_ends()
                    if self._control in ready:
                        listening = self._handle_order()
            finally:
                self._kill_everything()

    def _handle_order(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, _MOST_DESCRIPTORS)
        except ConnectionResetError:  # it ended without having read all that we said
            return False
        if not data:
            return False
        self._descriptors += descriptors
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            ((order, lane),) = json.loads(line).items()
            if order == "start":
                self._start(lane, self._descriptors.pop(0), self._descriptors.pop(0))
            else:
                self._signal(lane, signal.SIGKILL if order == "kill" else signal.SIGUSR1)
        return True

    def _start(self, lane: int, channel: int, output: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            _tell(self._control, {"not_started": lane, "error": error.strerror})
        else:
            if pid == 0:
                self._become_lane(channel, output)
            self._lane_of[pid] = lane
            _tell(self._control, {"started": lane, "pid": pid})
        os.close(channel)
        os.close(output)

    def _become_lane(self, channel: int, output: int) -> NoReturn:
        """Never comes back: this is the copy, and the loop belongs to the original."""
        from torchstone.workers import child, containment

        try:
            zygote = os.getppid()
            # A session of its own, so that one signal to the group reaches what the task starts, and a group that the
            # task makes is still found by its session.
            os.setsid()
            containment.die_with_parent(zygote)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (self._control.fileno(), self._woken, self._waker):
                os.close(descriptor)
            containment.prefer_as_oom_victim()
            if self._most_processes is not None:
                containment.limit_processes(self._most_processes)
            child.redirect_output(output)
            if not self._forks:
                # Threads and device handles do not survive a fork, so this copy replaces itself before it uses any.
                os.set_inheritable(channel, True)  # noqa: FBT003 - it takes no names
                command = [sys.executable, "-u", __file__, _FRESH_LANE, str(channel)]
                os.execv(sys.executable, command)  # noqa: S606 - no shell
            child.run_tasks(socket.socket(fileno=channel))
            os._exit(0)
        finally:
            os._exit(70)  # EX_SOFTWARE: the lane itself failed, not the task

    def _signal(self, lane: int, number: signal.Signals) -> None:
        for pid in [pid for pid, its_lane in self._lane_of.items() if its_lane == lane]:
            if number == signal.SIGKILL:
                with contextlib.suppress(ProcessLookupError):  # it has not become a group yet
                    os.killpg(pid, number)
            os.kill(pid, number)

    def _report_ends(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 4096):
                pass
        while True:
            try:  # look first: as long as it is not reaped, no other process can get its id
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if ended.si_pid in self._lane_of:
                # Before it is reaped: its id still names its group, and cannot have been given to a stranger.
                self._kill_session(ended.si_pid)
            _, status, usage = os.wait4(ended.si_pid, 0)
            lane = self._lane_of.pop(ended.si_pid, None)
            if lane is not None:
                code = os.waitstatus_to_exitcode(status)
                _tell(self._control, {"exited": lane, "code": code, "peak_kib": usage.ru_maxrss})

    def _kill_session(self, leader: int) -> None:
        """Kill what a lane's first process left running: its group, and groups that it made."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
        orphans = set(_children()) - set(self._lane_of) - self._companions
        if orphans:  # rarely; there may be more of them
            for pid in _session_members(leader):
                if pid != leader:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def _kill_everything(self) -> None:
        until = time.monotonic() + TIDYING_S
        for pid in self._lane_of:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < until:  # the children of the killed become ours: until there are none
                for pid in _children():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
                time.sleep(0.005)


def _children() -> list[int]:
    """The processes that this one is the parent of; none are known where there is no /proc."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []


def _count_threads() -> int:
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return 1


def _session_members(session: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[3]) == session:
                    members.append(int(entry.name))
    return members


if __name__ == "__main__":
    main()
