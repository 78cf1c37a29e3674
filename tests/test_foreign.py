"""Code of others may raise anything: it becomes a value, and what is not its answer passes."""

import errno
import traceback

import pytest

from torchstone.errors import InputError
from torchstone.foreign import foreign_code


def of_a_user(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [ValueError("no"), MemoryError(), RecursionError("deep"), OSError(errno.EIO, "bad")])
def test_what_foreign_code_raises_is_a_value(error: Exception) -> None:
    with foreign_code() as ran:
        of_a_user(error)

    assert ran.error is error


def test_the_place_in_the_foreign_code_is_kept() -> None:
    with foreign_code() as ran:
        of_a_user(ValueError("no"))

    assert ran.error is not None
    names = [frame.name for frame in traceback.extract_tb(ran.error.__traceback__)]
    assert names == ["test_the_place_in_the_foreign_code_is_kept", "of_a_user"]


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_whose_text_cannot_be_made_has_its_name_and_place() -> None:
    with foreign_code() as ran:
        of_a_user(UnprintableError())

    assert ran.error is not None
    assert f"{type(ran.error).__name__}: {ran.error}" == "UnprintableError: its text cannot be shown"
    assert traceback.extract_tb(ran.error.__traceback__)[-1].name == "of_a_user"


def test_code_that_raises_nothing_has_no_error() -> None:
    with foreign_code() as ran:
        answer = 1

    assert (ran.error, answer) == (None, 1)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_interrupts_and_exits_pass(error: BaseException) -> None:
    with pytest.raises(type(error)), foreign_code():
        of_a_user(error)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.EDQUOT])
def test_an_exhausted_machine_is_not_the_answer_of_foreign_code(number: int) -> None:
    with pytest.raises(OSError, match="full"), foreign_code():
        of_a_user(OSError(number, "full"))


def test_an_exhausted_machine_is_a_value_where_the_caller_reports_it() -> None:
    with foreign_code(exhaustion_is_answer=True) as ran:
        of_a_user(OSError(errno.ENOSPC, "full"))

    assert isinstance(ran.error, OSError)


def test_errors_of_our_own_pass_where_the_caller_names_them() -> None:
    with pytest.raises(InputError, match="ours"), foreign_code(passing=(InputError,)):
        of_a_user(InputError("ours"))


def test_a_program_may_leave_by_exit_where_that_is_an_answer() -> None:
    with foreign_code(exit_is_answer=True) as ran:
        of_a_user(SystemExit(3))

    assert ran.error is None
    assert ran.exit is ran.raised
