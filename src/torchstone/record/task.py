"""A task for a process of its own, where it runs and how it ended; a backend as its environment reports it."""

from enum import StrEnum
from typing import Any

from torchstone.record.base import Record

# --- Tasks: work for a process of its own, where it runs, and how it ended ---


class Ending(StrEnum):
    """How a task ended; all but the first say that there is no answer."""

    ANSWERED = "answered"
    RAISED = "raised"  # a Python exception
    CRASHED = "crashed"  # a signal, or an exit code other than 0
    TIMED_OUT = "timed out"
    TOO_BUSY = "machine too busy"  # it was not given the CPU time of its deadline: nothing is known about it
    OUT_OF_MEMORY = "out of memory"
    NO_ANSWER = "no answer"  # it left with exit code 0 without an answer, or with half of one
    CANCELLED = "cancelled"


class Limits(Record, frozen=True, kw_only=True):
    """What a task may use."""

    deadline_s: float = 60.0  # without the time that it waits for a CPU
    retries_timeout: bool = True  # a task that times out runs once more, alone, before it is reported
    memory_bytes: int | None = None  # beyond what was loaded before it; None: a fair share of what the machine has free
    kept_output_bytes: int = 16_384  # of stdout and stderr together: the beginning and the end

    @property
    def longest_s(self) -> float:
        """The wall-clock time after which a machine is too busy for the task."""
        return 10 * self.deadline_s + 300.0


class Task(Record, frozen=True, kw_only=True):
    """A function to call, by name, in a process of its own."""

    id: str
    entry: str  # "package.module:function", called with the payload; what it returns must be JSON
    payload: dict[str, Any] = {}
    limits: Limits | None = None  # None: those of the pool


class Evidence(Record, frozen=True, kw_only=True):
    """The evidence that a process left."""

    signal: str | None = None  # "SIGSEGV"
    exit_code: int | None = None  # None: a signal ended it, or it answered and was not waited for
    error: str | None = None  # one line: the exception, or what was noticed from outside
    traceback: str | None = None
    last_output: str = ""  # beginning and end of stdout and stderr
    output_bytes: int = 0  # all that it wrote
    peak_bytes: int | None = None  # peak memory beyond what was loaded before it; None: unknown


class TaskResult(Record, frozen=True, kw_only=True):
    """How one task ended."""

    id: str
    ending: Ending
    answer: Any | None = None
    evidence: Evidence = Evidence()
    elapsed_s: float = 0.0


class Environment(Record, frozen=True, kw_only=True):
    """Where tasks run: an interpreter, and what is done there once before the first task."""

    python: str  # path of the interpreter; it need not have torchstone
    variables: dict[str, str] = {}  # added to those of this process
    preload: tuple[str, ...] = ()  # modules to import before the first fork
    setup: str | None = None  # an entry that is called once before the first fork
    setup_payload: dict[str, Any] = {}
    forks: bool = True  # False: a fresh process per task, since the environment cannot be forked after its setup
    extra_paths: tuple[str, ...] = ()  # folders put on sys.path


# --- Backends, as one environment reports them ---


class Origin(StrEnum):
    """Who brings a backend."""

    BUILT_IN = "built in"
    ENTRY_POINT = "entry point"  # an installed package
    FILE = "file"  # a class in a file or module, given by the user


class BackendFacts(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One backend as the environment that was asked describes it."""

    name: str  # as it is given to a command
    origin: Origin
    location: str  # module:Class or file.py::Class
    summary: str = ""  # the first line of its docstring
    usable: bool
    opened: bool = True  # False: there is none of this name, or it does not take these options
    reason: str = ""  # why it is not usable; "" when it is
    version: str = ""  # "torch 2.13.0, onnxruntime 1.31.1"
    digest: str = ""  # of its source and of the packages it imports; "" where it could not be opened
    needs: str = ""  # what to install; "" when it is usable
    forks: bool = True  # False: each task gets a fresh process
    gradients: bool = False  # its results can be differentiated
    variants: dict[str, dict[str, str]] = {}  # other settings to try a failure with: variables of the environment
    options: tuple[str, ...] = ()  # names that its constructor takes


class BackendListing(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The backends of one environment."""

    python: str  # the interpreter that was asked
    python_version: str
    backends: tuple[BackendFacts, ...] = ()
