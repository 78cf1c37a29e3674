"""What is known about a backend in one environment."""

from enum import StrEnum

from torchstone.record.base import Record


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
    needs: str = ""  # what to install; "" when it is usable
    forks: bool = True  # False: each task gets a fresh process
    options: tuple[str, ...] = ()  # names that its constructor takes


class BackendListing(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The backends of one environment."""

    python: str  # the interpreter that was asked
    python_version: str
    backends: tuple[BackendFacts, ...] = ()
