"""A module class and its parameters -> FLOPs and bytes, by nesting: `compute_flops`, `compute_memory`."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypedDict, overload

from torchstone.formula.computation import Computation, given_values
from torchstone.formula.consistency import require_sound
from torchstone.formula.database import DATABASE_FILE, Formulas, home_folder, load_formulas
from torchstone.formula.explaining import explanation
from torchstone.formula.expression import Value
from torchstone.record.formula import FormulaEntry, Quantity


class MemoryBytes(TypedDict):
    """The bytes of one call; None where an entry has no formula for it."""

    reads: Value
    writes: Value
    intermediates: Value | None
    weights: Value | None


@overload
def compute_flops(
    name: str, /, *, explain: Literal[False] = ..., formulas: Formulas | None = ..., **parameters: Value
) -> Value: ...
@overload
def compute_flops(
    name: str, /, *, explain: Literal[True], formulas: Formulas | None = ..., **parameters: Value
) -> str: ...
def compute_flops(
    name: str, /, *, explain: bool = False, formulas: Formulas | None = None, **parameters: Value
) -> Value | str:
    """The FLOPs of one call of a module class, or with explain=True the tree of how they come about."""
    known = formulas or formulas_at_hand()
    if explain:
        return explanation(known, name, Quantity.FLOPS, parameters)
    return compute(known, name, Quantity.FLOPS, parameters)


@overload
def compute_memory(
    name: str, /, *, explain: Literal[False] = ..., formulas: Formulas | None = ..., **parameters: Value
) -> MemoryBytes: ...
@overload
def compute_memory(
    name: str, /, *, explain: Literal[True], formulas: Formulas | None = ..., **parameters: Value
) -> str: ...
def compute_memory(
    name: str, /, *, explain: bool = False, formulas: Formulas | None = None, **parameters: Value
) -> MemoryBytes | str:
    """The bytes that one call of a module class reads, writes and holds, or the trees of how they come about."""
    known = formulas or formulas_at_hand()
    entry = known.find(name)
    if explain:
        asked = [quantity for quantity in Quantity if quantity is not Quantity.FLOPS and entry.template(quantity)]
        return "\n\n".join(f"{one}\n{explanation(known, name, one, parameters)}" for one in asked)
    return MemoryBytes(
        reads=compute(known, name, Quantity.READS, parameters),
        writes=compute(known, name, Quantity.WRITES, parameters),
        intermediates=_if_known(known, entry, name, Quantity.INTERMEDIATES, parameters),
        weights=_if_known(known, entry, name, Quantity.WEIGHTS, parameters),
    )


def _if_known(
    formulas: Formulas, entry: FormulaEntry, name: str, quantity: Quantity, parameters: Mapping[str, Value]
) -> Value | None:
    return None if entry.template(quantity) is None else compute(formulas, name, quantity, parameters)


def compute(formulas: Formulas, name: str, quantity: Quantity, parameters: Mapping[str, Value]) -> Value:
    """One quantity of a module class; everything it reaches is checked before anything is computed."""
    entry = formulas.find(name)
    require_sound(formulas, entry, quantity)
    return Computation(formulas, quantity).of_entry(entry, given_values(entry, quantity, parameters))


def formulas_at_hand() -> Formulas:
    """The shipped formulas and the user's own, read again only when the user's file has changed."""
    path = home_folder() / DATABASE_FILE
    try:
        seen = path.stat()
    except OSError:
        return _load(path.parent, 0, 0)
    return _load(path.parent, seen.st_mtime_ns, seen.st_size)


@lru_cache(maxsize=4)
def _load(home: Path, _changed_ns: int, _size_bytes: int) -> Formulas:
    return load_formulas(home)
