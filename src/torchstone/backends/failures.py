"""Classify what a compiler or a runtime raised: a refusal, a failure to compile, a lack of memory, or an error."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torchstone.backends.protocol import CompileFailed, NotRun, Unsupported, first_line
from torchstone.foreign import foreign_code

Refusal = Unsupported | CompileFailed
ErrorClassifier = Callable[[Exception], Refusal | None]  # what a backend's own errors mean; None: nothing special

WRITES_TO_INPUT = "the backend writes to its input"  # how a verdict begins whose values are right
COMPILE = "compile"  # the stage before the first run
_ALREADY_CLASSIFIED = (Unsupported, CompileFailed, NotRun)
_NUMBER = re.compile(r"\d+")
_OP_NAME = re.compile(
    r"\b(?:torch\.ops\.)?(?:(?:aten|prims|onnx|higher_order|torchvision)(?:\.|::)[\w.]+|\w+\.\w+\.default\b)"
)
_SEPARATORS = re.compile(r"[,;'\"\[\]()]|\band\b")
_MOST_READ = 4_000  # characters of a message
_MOST_COMPARED = 80  # of these, without numbers and names of ops: what it begins with says what it is
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc", "resource_exhausted")
EXHAUSTED = "the system refused it: "  # how the reason of what was not run begins, where a resource was missing
_RESOURCES = tuple(
    os.strerror(getattr(errno, name)).lower()
    for name in ("ENOSPC", "EDQUOT", "ENFILE", "EMFILE", "EROFS")
    if hasattr(errno, name)
)


def unclassified(_error: Exception) -> None:
    """An error that says no more than that it happened."""


@contextmanager
def compiling(classify: ErrorClassifier = unclassified) -> Iterator[None]:
    """What is raised inside comes out as a refusal, as a failure to compile, or as a lack of memory."""
    with foreign_code(_ALREADY_CLASSIFIED) as ran:  # compilers, and the Python around them, raise anything
        yield
    if ran.error is not None:
        if is_out_of_memory(ran.error):
            raise ran.error
        raise classify(ran.error) or CompileFailed(first_line(ran.error)) from ran.error


@contextmanager
def running(classify: ErrorClassifier) -> Iterator[None]:
    """What is raised inside comes out as it is, unless the backend's words say that it never came to run."""
    with foreign_code(_ALREADY_CLASSIFIED) as ran:  # what a module raises while it runs is its own
        yield
    if ran.error is not None:
        refusal = None if is_out_of_memory(ran.error) else classify(ran.error)
        if refusal is None:
            raise ran.error
        raise refusal from ran.error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that led to it, says that memory ran out."""
    return any(
        isinstance(one, MemoryError) or any(words in str(one).lower() for words in _NO_MEMORY)
        for one in with_causes(error)
    )


def exhausted(*texts: str) -> str:
    """Which resource of the system was missing, by the texts of errors; "" for none.

    A full disk or a lack of descriptors says nothing about an op or a backend: what it stopped was not run.
    """
    return next((words for text in texts for words in _RESOURCES if words in text.lower()), "")


def outcome_of(error: Exception, stage: str) -> str:
    """One word for what was raised in a stage: unsupported, compile error, out of memory, not run or raised."""
    if exhausted(*map(str, with_causes(error))):
        return "not run"
    if isinstance(error, Unsupported):
        return "unsupported"
    if isinstance(error, NotRun):
        return "not run"
    if is_out_of_memory(error):
        return "out of memory"
    return "compile error" if isinstance(error, CompileFailed) or stage == COMPILE else "raised"


def same_words(first: str, second: str) -> bool:
    """Whether two reasons say the same: numbers, and the ops that are named, may differ."""
    return _without_names(first) == _without_names(second)


def _without_names(text: str) -> str:
    """A refusal of two ops reads as one of a single op does."""
    rest = _OP_NAME.sub("", _NUMBER.sub("", text[:_MOST_READ]))
    return " ".join(_SEPARATORS.sub(" ", rest).split())[:_MOST_COMPARED]


def with_causes(error: BaseException) -> list[BaseException]:
    """An error and what led to it, the first cause last."""
    causes: list[BaseException] = []
    while error not in causes:
        causes.append(error)
        inner = getattr(error, "inner_exception", None) or error.__cause__  # torch.compile wraps what a backend raised
        if inner is None:
            break
        error = inner
    return causes
