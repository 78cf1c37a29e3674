"""Whether an entry says what was measured."""

from collections.abc import Sequence

from torchstone.errors import FormulaError
from torchstone.formula.computing import compute
from torchstone.formula.consistency import check_alone, require_sound
from torchstone.formula.database import Formulas
from torchstone.formula.names import key_of
from torchstone.formula.templates import name_of
from torchstone.record.formula import FormulaEntry, MeasuredCost, Quantity


def discrepancy(formulas: Formulas, entry: FormulaEntry, points: Sequence[MeasuredCost]) -> str | None:
    """The first thing that is wrong with an entry; None where it is sound and equal at every point."""
    known = Formulas(entries={**formulas.entries, key_of(entry.module_path, entry.variant): entry})
    try:
        check_alone(entry)
        for quantity in (Quantity.FLOPS, Quantity.READS, Quantity.WRITES):
            require_sound(known, entry, quantity)
        for point in points:
            differs = _difference(known, entry, point)
            if differs is not None:
                return differs
    except FormulaError as error:
        return str(error)
    return None


def _difference(formulas: Formulas, entry: FormulaEntry, point: MeasuredCost) -> str | None:
    measured = {
        Quantity.FLOPS: point.flops,
        Quantity.READS: point.reads_bytes,
        Quantity.WRITES: point.writes_bytes,
    }
    for quantity, expected in measured.items():
        found = compute(formulas, name_of(entry), quantity, point.parameters)
        if found != expected:
            at = ", ".join(f"{name}={value}" for name, value in point.parameters.items())
            off = found - expected
            return f"at {at} the formula gives {found} {quantity}, but {expected} were measured (off by {off})"
    return None
