"""The border to code and data of others: the one place where any exception is caught, and the ops that data never call.

Needs the standard library only.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

_EXHAUSTED = frozenset(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EMFILE", "ENFILE") if hasattr(errno, name)
)


class foreign_code:  # noqa: N801 - used as a function, as contextlib.suppress is
    """A block that runs code of others (a model, a backend, torch's kernels, a price function): it may raise anything.

    What it raises ends the block and is its `error`, a value like any other. Interrupts and exits pass: they are never
    the answer of foreign code; only a program that is run or imported may leave by sys.exit (`exit_is_answer`). A full
    disk and a lack of descriptors pass, too, unless `exhaustion_is_answer` says that the caller reports them as what
    was not run. `passing` lists errors of our own that pass as well.
    """

    def __init__(
        self,
        passing: tuple[type[Exception], ...] = (),
        *,
        exhaustion_is_answer: bool = False,
        exit_is_answer: bool = False,
    ) -> None:
        self._passing = passing
        self._exhaustion_is_answer = exhaustion_is_answer
        self._exit_is_answer = exit_is_answer
        self.error: Exception | None = None
        self.exit: SystemExit | None = None  # only where it is an answer

    @property
    def raised(self) -> BaseException:
        """What ended the block, after one that nothing but an error or exit leads out of."""
        found = self.error or self.exit
        if found is None:
            msg = "the block raised nothing"
            raise LookupError(msg)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if isinstance(error, SystemExit) and self._exit_is_answer:
            self.exit = error
            return True
        if not isinstance(error, Exception) or isinstance(error, self._passing):
            return False
        if isinstance(error, OSError) and error.errno in _EXHAUSTED and not self._exhaustion_is_answer:
            return False
        self.error = printable(error)
        return True


def printable(error: Exception) -> Exception:
    """The same error, or one of its name where its own text cannot be made: that is foreign code, too."""
    with suppress(Exception):
        str(error)
        return error
    plain: Exception = type(type(error).__name__, (Exception,), {})("its text cannot be shown")
    return plain.with_traceback(error.__traceback__)


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
