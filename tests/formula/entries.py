"""Entries made by hand."""

from collections.abc import Mapping

from torchstone.formula.database.files import Formulas, key_of
from torchstone.record.formula import FlopAnalysis, FormulaEntry, MemoryAnalysis, Status, Validation


def entry(
    path: str,
    formula: str,
    *parameters: str,
    defaults: Mapping[str, str] | None = None,
    domain: tuple[str, ...] = (),
    variant: str = "",
) -> FormulaEntry:
    """A class whose FLOPs are a formula of some parameters, and whose bytes are not known."""
    return FormulaEntry(
        module_path=path,
        variant=variant,
        flop_analysis=FlopAnalysis(parameters=parameters, formula_template=formula),
        defaults=dict(defaults or {}),
        domain=domain,
        validation=Validation(status=Status.UNCHECKED, validator="hand"),
    )


def memory(
    *parameters: str, reads: str = "0", writes: str = "0", weights: str | None = None, live: str | None = None
) -> MemoryAnalysis:
    """The bytes of a class."""
    return MemoryAnalysis(
        parameters=parameters,
        reads_template=reads,
        writes_template=writes,
        intermediates_template=live,
        weights_template=weights,
    )


def formulas(*entries: FormulaEntry) -> Formulas:
    """A database of these entries alone."""
    return Formulas(entries={key_of(one.module_path, one.variant): one for one in entries})
