"""The zygote as seen from outside: start it, send it requests, read its reports."""

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from torchstone.errors import WorkerError
from torchstone.record.base import Record
from torchstone.record.task import Environment
from torchstone.workers.lane import Lane, OutputTail, describe_exit

ZYGOTE = Path(__file__).with_name("zygote.py")
_CHUNK_BYTES = 1 << 16
_SETUP_OUTPUT_BYTES = 8_192
_PATIENCE_S = 15.0  # far longer than the zygote takes to tidy up, on a busy machine too
HUGE_PAGES = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # C code and, by the next one, Python
    "PYTHONMALLOC": "malloc",
    "THP_MEM_ALLOC_ENABLE": "1",  # torch
}  # a fork copies one entry per page: with pages of 2 MiB it takes a third of the time
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Report(Record, frozen=True, kw_only=True):
    """A line from the zygote; which kind it is says the field that is set."""

    ready: int | None = None
    failed: str | None = None
    started: int | None = None
    not_started: int | None = None
    exited: int | None = None
    threads: int = 1  # of the zygote when it was ready
    pid: int = 0
    code: int = 0  # negative: the signal that ended it
    peak_kib: int = 0
    error: str = ""


class Launcher:
    """One zygote."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._unread = b""
        self.setup_output = OutputTail(_SETUP_OUTPUT_BYTES)  # what the set-up printed
        self.ready = False
        self.threads = 1  # before the first fork; more than one, and what the others held is lost in every copy
        self.control, theirs = socket.socketpair()
        command = [environment.python, "-u", str(ZYGOTE), str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the interpreter that the user named
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._variables(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for us; we tell the zygote
                bufsize=0,
            )
        except OSError as error:
            self.control.close()
            msg = f"cannot start {environment.python}: {error.strerror or error}; name a Python interpreter"
            raise WorkerError(msg) from error
        finally:
            theirs.close()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died at once; its exit will tell
            self.control.sendall(self._orders())
        self.control.settimeout(0)
        os.set_blocking(self.words_end, False)

    @property
    def words_end(self) -> int:
        """The pipe that the set-up prints to."""
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - asked for above
        return stdout.fileno()

    def start(self, lane: Lane) -> None:
        """Have a process started for a lane."""
        with contextlib.suppress(OSError):  # it died; the control socket says so next
            socket.send_fds(self.control, [_line({"start": lane.number})], list(lane.far_descriptors))
        lane.let_go_of_far_ends()
        if not self._environment.forks:
            lane.outbox += self._orders()
            lane.send()

    def kill(self, lane: Lane) -> None:
        """Have a lane's processes killed."""
        self._tell({"kill": lane.number})

    def show(self, lane: Lane) -> None:
        """Have a lane print where it is."""
        self._tell({"show": lane.number})

    def reports(self) -> tuple[list[Report], bool]:
        """What the zygote has said since, and whether it is still there."""
        try:
            data = self.control.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return [], True
        except OSError:
            return [], False
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [msgspec.json.decode(line, type=Report) for line in lines], bool(data)

    def read_words(self) -> int | None:
        """Take what the set-up has printed since: how many bytes, 0 at the end, None for nothing just now."""
        try:
            data = os.read(self.words_end, _CHUNK_BYTES)
        except BlockingIOError:
            return None
        self.setup_output.feed(data)
        return len(data)

    def how_it_ended(self) -> str:
        """After it has hung up: its exit in words."""
        try:
            code = self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return describe_exit(code)

    def end(self) -> None:
        """End it at once; the control socket closes, and says so."""
        self._process.kill()

    def close(self) -> bool:
        """Hang up, so that it kills all it started and leaves; whether it did. While it is set up it cannot hear."""
        self.control.close()
        try:
            if self.ready:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_PATIENCE_S)
            return self._process.poll() == 0
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()

    def _tell(self, order: dict[str, object]) -> None:
        with contextlib.suppress(OSError):  # it died, which the control socket says next, or it hangs
            self.control.send(_line(order))

    def _variables(self) -> dict[str, str]:
        given = dict(os.environ) | _ONE_THREAD | self._environment.variables
        return HUGE_PAGES | given if self._environment.forks else given

    def _orders(self) -> bytes:
        environment = self._environment
        return _line(
            {
                "parent": os.getpid(),
                "forks": environment.forks,
                "forget": [name for name in HUGE_PAGES if name not in os.environ | environment.variables],
                "preload": list(environment.preload),
                "setup": environment.setup,
                "setup_payload": environment.setup_payload,
                "extra_paths": list(environment.extra_paths),
            }
        )


_waiting: list[tuple[Environment, Launcher]] = []  # started before the pool that will use them


@contextlib.contextmanager
def started_early(environment: Environment) -> Iterator[None]:
    """Set an environment up while something else is done; the next pool of it takes it over, else it is ended."""
    mine = (environment, Launcher(environment))
    _waiting.append(mine)
    try:
        yield
    finally:
        if any(one is mine for one in _waiting):
            _waiting.remove(mine)
            mine[1].close()


def launch(environment: Environment) -> Launcher:
    """A zygote for an environment: one that was started early, or a new one."""
    for place, (known, launcher) in enumerate(_waiting):
        if known == environment:
            del _waiting[place]
            return launcher
    return Launcher(environment)


def _line(document: dict[str, object]) -> bytes:
    return json.dumps(document, allow_nan=False).encode() + b"\n"
