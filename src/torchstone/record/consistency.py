"""What must hold inside a record beyond the types of its fields: equal lengths, numbers in range, known names.

Records call these functions from `Document.check`, once, when they are decoded. Each raises ValueError with the name of
the field and the first value that is wrong.
"""

from collections.abc import Collection, Iterable, Sequence, Sized
from pathlib import PurePosixPath


def same_length(**columns: Sized) -> None:
    """All columns have the length of the first."""
    (first, column), *others = columns.items()
    for name, other in others:
        if len(other) != len(column):
            msg = f"{name} has {len(other)} entries where {first} has {len(column)}"
            raise ValueError(msg)


def in_range(name: str, numbers: Collection[int], end: int, *, start: int = 0) -> None:
    """All numbers are at least start and less than end."""
    if numbers and not (start <= min(numbers) and max(numbers) < end):
        wrong = next(number for number in numbers if not start <= number < end)
        msg = f"{name} has {wrong}, outside {start} to {end - 1}"
        raise ValueError(msg)


def rows_in_range(name: str, rows: Iterable[Sequence[int]], end: int) -> None:
    """All numbers of all rows are in range."""
    in_range(name, {number for row in rows for number in row}, end)


def known(name: str, found: Iterable[str], names: Collection[str]) -> None:
    """All references are to names that are there."""
    for one in found:
        if one not in names:
            msg = f"{name} refers to {one[:80]!r}, which is not there"
            raise ValueError(msg)


def distinct(name: str, found: Sequence[str]) -> None:
    """No name appears twice."""
    if len(set(found)) != len(found):
        twice = next(one for one in found if found.count(one) > 1)
        msg = f"{name} has {twice[:80]!r} twice"
        raise ValueError(msg)


def inside(name: str, files: Iterable[str]) -> None:
    """All files are below the folder of results: a report shows them, and must not show others."""
    for file in files:
        if file and ("\\" in file or ".." in PurePosixPath(file).parts or PurePosixPath(file).is_absolute()):
            msg = f"{name} names {file[:80]!r}, which is not a file below the folder of results"
            raise ValueError(msg)
