"""The border to code and data of others: the one place where any exception is caught, and the ops that data never call.

Needs the standard library only.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import NoReturn, Self

_EXHAUSTED = frozenset(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EMFILE", "ENFILE") if hasattr(errno, name)
)

_PATIENCE_S = 10.0  # that threads and atexit functions of the user's code may take after the end of a command


class foreign_code:  # noqa: N801 - used as a function, as contextlib.suppress is
    """A block that runs code of others (a model, a backend, torch's kernels, a price function): it may raise anything.

    What it raises ends the block and is its `error`, a value like any other. Interrupts and exits pass: they are never
    the answer of foreign code; only a program or model of the user may leave by sys.exit, or by an exception that is no
    Exception (`exit_is_answer`). A full disk and a lack of descriptors pass, too, unless `exhaustion_is_answer` says
    that the caller reports them as what was not run. `passing` lists errors of our own that pass as well.

    In the process of a command, what the block did to the process itself ends with it (`kept_process`). A `stage` of
    torchstone, which prints and writes files in between, is no such block.
    """

    def __init__(
        self,
        passing: tuple[type[Exception], ...] = (),
        *,
        exhaustion_is_answer: bool = False,
        exit_is_answer: bool = False,
        stage: bool = False,
    ) -> None:
        self._stage = stage
        self._passing = passing
        self._exhaustion_is_answer = exhaustion_is_answer
        self._exit_is_answer = exit_is_answer
        self.error: Exception | None = None
        self.exit: SystemExit | None = None  # only where it is an answer
        self.cause: BaseException | None = None  # the very object that ended the block

    @property
    def raised(self) -> BaseException:
        """What ended the block, after one that nothing but an error or exit leads out of."""
        found = self.error or self.exit
        if found is None:
            msg = "the block raised nothing"
            raise LookupError(msg)
        return found

    def __enter__(self) -> Self:
        if _process is not None and not self._stage:
            _process.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if _process is not None and not self._stage:
            _process.end()
        if error is None or isinstance(error, (*_NEVER_AN_ANSWER, *self._passing)):
            return False
        if isinstance(error, SystemExit) and self._exit_is_answer:
            self.exit = self.cause = error
            return True
        if not isinstance(error, Exception) and (not self._exit_is_answer or isinstance(error, SystemExit)):
            return False
        if isinstance(error, OSError) and error.errno in _EXHAUSTED and not self._exhaustion_is_answer:
            return False
        self.cause, self.error = error, printable(error)
        return True


_NEVER_AN_ANSWER = (KeyboardInterrupt, GeneratorExit)


def printable(error: BaseException) -> Exception:
    """The same error, or one of its name where its own text cannot be made: that is foreign code, too."""
    text = "its text cannot be shown"
    with suppress(Exception, SystemExit, GeneratorExit):
        text = str(error)
        if isinstance(error, Exception):
            return error
    plain: Exception = type(type(error).__name__, (Exception,), {})(text)
    return plain.with_traceback(error.__traceback__)


# --- The process of a command: what foreign code does to it ends with that code ---

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_OUTPUTS = (1, 2)
_OUT_OF_REACH = 500  # code that closes all descriptors begins with the first ones
_process: kept_process | None = None


class kept_process:  # noqa: N801 - used as a function, as foreign_code is
    """A block around a command that runs code of others in its own process.

    Such code may close or redirect stdout, change the folder, ignore Ctrl-C, or fork and return twice. Then a
    result would be lost without a word, be written to another folder, or appear twice. So what the process is to
    torchstone is set aside when foreign code begins, and is back when it ends. The folder that foreign code
    changed to is there again when it next runs: it may look for its files there.

    `os._exit` in foreign code calls `on_exit` with its code, which must not return: nothing else would say that the
    command ended early. `on_return` is called when foreign code has ended, to set right what the caller alone knows of.
    """

    def __init__(self, *, on_exit: Callable[[object], NoReturn], on_return: Callable[[], None]) -> None:
        self._on_exit = on_exit
        self._on_return = on_return
        self._pid = os.getpid()
        self._depth = 0
        self.ran = False  # whether there was foreign code
        self._theirs = ""  # the folder that foreign code changed to
        self._leave = os._exit
        self._streams = sys.stdout, sys.stderr
        self._copies: dict[int, int] = {}
        self._outer: kept_process | None = None

    def __enter__(self) -> Self:
        global _process
        for number in _OUTPUTS:
            with suppress(OSError):  # it was started without
                self._copies[number] = _copy_of(number)
        self._outer, _process = _process, self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        global _process  # noqa: PLW0603 - as above
        _process = self._outer
        for copy in self._copies.values():
            with suppress(OSError):  # foreign code closed it, too
                os.close(copy)

    def begin(self) -> None:
        """Foreign code begins."""
        if threading.current_thread() is not threading.main_thread() or os.getpid() != self._pid:
            return
        self._depth += 1
        self.ran = True
        if self._depth > 1:
            return
        self._streams = sys.stdout, sys.stderr
        self._path, self._finders, self._recursion = [*sys.path], [*sys.meta_path], sys.getrecursionlimit()
        self._hooks = sys.excepthook, sys.unraisablehook
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self._leave = os._exit
        os._exit = self._exit  # type: ignore[assignment]
        self._folder = _current_folder()
        if self._theirs:
            with suppress(OSError):
                os.chdir(self._theirs)

    def end(self) -> None:
        """It has ended."""
        if threading.current_thread() is not threading.main_thread():
            return
        if os.getpid() != self._pid:
            if self._depth:  # it forked and came back twice: one of the two must not go on
                self._leave(0)
            return
        self._depth -= 1
        if self._depth > 0:
            return
        os._exit = self._leave
        folder = _current_folder()
        if self._folder and folder != self._folder:
            self._theirs = folder
            with suppress(OSError):
                os.chdir(self._folder)
        self._restore_python()
        self._restore_outputs()
        sys.stdout, sys.stderr = self._streams
        self._on_return()

    def _restore_python(self) -> None:
        for number, handler in self._handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        sys.excepthook, sys.unraisablehook = self._hooks
        sys.path += [one for one in self._path if one not in sys.path]  # what was added stays
        sys.meta_path += [one for one in self._finders if one not in sys.meta_path]
        if sys.getrecursionlimit() < self._recursion:
            sys.setrecursionlimit(self._recursion)

    def _restore_outputs(self) -> None:
        """Let stdout and stderr lead where they led."""
        for number, copy in self._copies.items():
            with suppress(OSError):  # the copy was closed, too
                led = os.fstat(copy)
                try:
                    leads = os.fstat(number)
                except OSError:
                    leads = None
                if leads is None or not os.path.samestat(led, leads):
                    os.dup2(copy, number)

    def _exit(self, code: object) -> None:
        if os.getpid() != self._pid:  # a fork of foreign code ends as it likes
            self._leave(code)  # type: ignore[arg-type]
        self.end()
        self._on_exit(code)


def _current_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - called around each block
    except OSError:  # it was removed
        return ""


def _copy_of(descriptor: int) -> int:
    """A descriptor for the same file, which no program that is started gets."""
    with suppress(ImportError, OSError):  # not on Windows, or the limit of descriptors is lower
        import fcntl

        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_REACH)
    return os.dup(descriptor)


def end_soon(code: int) -> None:
    """Let the process end also where foreign code left a thread or an atexit function that does not.

    All must be written and flushed: nothing but such code may take time from here on.
    """

    def end() -> None:
        left = [one.name for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
        what = f"the thread {left[0][:60]!a}" if left else "a function for the end of the process"
        text = f"torchstone: warning: the user's code left {what} running; it was ended after {_PATIENCE_S:.0f} s"
        with suppress(OSError, ValueError):
            os.write(2, f"{text}\n".encode("utf-8", "replace"))
        os._exit(code)

    timer = threading.Timer(_PATIENCE_S, end)
    timer.daemon = True
    timer.start()


# --- Data that name ops, and databases that compute ---

# Ops that read or write a file of any name, or print to the terminal.
_ACTS_OUTSIDE = frozenset({"aten.from_file", "aten._print", "debugprims.load_tensor"})
# The ops of torchvision, torchaudio and torchcodec that do, such as image.write_file; transformers imports these.
_OUTSIDE = frozenset({"image", "video_reader", "torchaudio", "torchaudio_sox", "torchcodec", "torchcodec_ns"})


def acts_outside(op: str) -> bool:
    """Whether an op, such as aten.mm.default, does more than compute on tensors: a name from a file must not."""
    return op.rpartition(".")[0] in _ACTS_OUTSIDE or op.partition(".")[0] in _OUTSIDE


def computed_tables(names: Iterable[str]) -> str:
    """The query for those of these tables in a SQLite file that compute what a reader gets, or what a writer stores.

    A view can compute without end, a generated column makes a gigabyte of each row, and a trigger writes what it likes.
    """
    listed = ", ".join(f"'{name}'" for name in sorted(names))
    return f"""
        SELECT tbl_name FROM sqlite_master
        WHERE lower(tbl_name) IN ({listed}) AND (type IN ('view', 'trigger') OR type = 'table' AND rootpage = 0)
        UNION SELECT one.name FROM sqlite_master AS one JOIN pragma_table_xinfo(one.name) AS column
        WHERE lower(one.name) IN ({listed}) AND one.type = 'table' AND one.rootpage > 0 AND column.hidden > 0
    """  # noqa: S608 - names that our own code lists
