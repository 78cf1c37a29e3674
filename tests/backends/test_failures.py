import errno
import os

import pytest

from torchstone.backends.failures import (
    Refusal,
    compiling,
    exhausted,
    is_out_of_memory,
    outcome_of,
    running,
    with_causes,
)
from torchstone.backends.protocol import CompileFailed, NotRun, Unsupported

NO_MEMORY = RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 64 bytes")


def refusing_sort(error: Exception) -> Refusal | None:
    return Unsupported("no sort", ops=("aten.sort.default",)) if "sort" in str(error) else None


def raised_in_compiling(error: Exception) -> Exception:
    with pytest.raises(Exception) as raised, compiling(refusing_sort):  # noqa: PT011 - whichever it is, is returned
        raise error
    return raised.value


def raised_in_running(error: Exception) -> Exception:
    with pytest.raises(Exception) as raised, running(refusing_sort):  # noqa: PT011 - whichever it is, is returned
        raise error
    return raised.value


def test_while_compiling_a_backends_own_words_come_first() -> None:
    original = ValueError("cannot sort")

    found = raised_in_compiling(original)

    assert isinstance(found, Unsupported)
    assert found.ops == ("aten.sort.default",)
    assert found.__cause__ is original


def test_while_compiling_anything_else_is_a_failure_to_compile() -> None:
    found = raised_in_compiling(KeyError("x"))

    assert type(found) is CompileFailed
    assert str(found) == "KeyError: 'x'"


def test_while_running_only_the_backends_own_words_change_an_error() -> None:
    own = ZeroDivisionError("by zero")

    assert isinstance(raised_in_running(ValueError("cannot sort")), Unsupported)
    assert raised_in_running(own) is own


@pytest.mark.parametrize(
    "error", [Unsupported("no sort"), CompileFailed("sort broke"), NotRun("sort compiled"), NO_MEMORY]
)
def test_what_is_told_apart_already_stays_as_it_is(error: Exception) -> None:
    assert raised_in_compiling(error) is error
    assert raised_in_running(error) is error


@pytest.mark.parametrize(
    ("error", "stage", "outcome"),
    [
        (Unsupported("x"), "compile", "unsupported"),
        (CompileFailed("x"), "run", "compile error"),
        (NotRun("x"), "run", "not run"),
        (ValueError("x"), "compile", "compile error"),
        (ValueError("x"), "run", "raised"),
        (MemoryError(), "compile", "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "run", "out of memory"),
    ],
)
def test_an_outcome_is_one_word(error: Exception, stage: str, outcome: str) -> None:
    assert outcome_of(error, stage) == outcome


def test_a_lack_of_memory_is_seen_behind_other_errors() -> None:
    wrapped = RuntimeError("the compiler broke")
    wrapped.__cause__ = MemoryError()

    assert is_out_of_memory(wrapped)
    assert not is_out_of_memory(RuntimeError("the compiler broke"))


def test_the_first_cause_comes_last() -> None:
    first, second, third = KeyError("x"), ValueError("y"), RuntimeError("z")
    second.__cause__, third.__cause__ = first, second

    assert with_causes(third) == [third, second, first]
    assert with_causes(first) == [first]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EROFS])
@pytest.mark.parametrize("stage", ["compile", "run"])
def test_a_resource_that_is_missing_is_no_verdict(number: int, stage: str) -> None:
    error = OSError(number, os.strerror(number), "/tmp/cache")  # noqa: S108 - nothing is written
    wrapped = CompileFailed("the compiler ended")
    wrapped.__cause__ = error

    assert outcome_of(error, stage) == outcome_of(wrapped, stage) == "not run"
    assert exhausted(str(error)) == os.strerror(number).lower()
    assert exhausted("no such operator") == ""
