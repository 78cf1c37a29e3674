"""The templates of an entry as trees; a mistake in one is named with entry, field and character."""

from collections.abc import Iterator
from functools import lru_cache

from torchstone.errors import FormulaError
from torchstone.formula.expression import Expression
from torchstone.formula.names import with_variant
from torchstone.formula.parsing import TemplateError, parse
from torchstone.record.formula import FormulaEntry, Quantity

FIELD_OF = {
    Quantity.FLOPS: "formula_template",
    Quantity.READS: "reads_template",
    Quantity.WRITES: "writes_template",
    Quantity.INTERMEDIATES: "intermediates_template",
    Quantity.WEIGHTS: "weights_template",
}


def name_of(entry: FormulaEntry) -> str:
    """An entry as messages name it."""
    return with_variant(entry.module_path, entry.variant)


def template_of(entry: FormulaEntry, quantity: Quantity) -> Expression:
    """The tree of one quantity; an unknown quantity is an error, not 0."""
    text = entry.template(quantity)
    if text is None:
        msg = f"{name_of(entry)} has no formula for {quantity}"
        raise FormulaError(msg)
    return parsed(entry, FIELD_OF[quantity], text)


def default_of(entry: FormulaEntry, parameter: str) -> Expression | None:
    """The value of a parameter where it is not given; None where it must be given."""
    text = entry.defaults.get(parameter)
    return None if text is None else parsed(entry, f"default of {parameter}", text)


def domain_of(entry: FormulaEntry) -> Iterator[Expression]:
    """The conditions under which the formulas hold."""
    for number, text in enumerate(entry.domain, start=1):
        yield parsed(entry, f"domain {number}", text)


def parsed(entry: FormulaEntry, field: str, text: str) -> Expression:
    """One text of an entry as a tree."""
    try:
        return _parse(text)
    except TemplateError as error:
        raise mistake(entry, field, error.reason, position=error.position) from error


def mistake(entry: FormulaEntry, field: str, reason: str, *, position: int) -> FormulaError:
    """What is wrong, and where; characters are counted from 1."""
    at = f", character {position + 1}" if position >= 0 else ""
    return FormulaError(f"{name_of(entry)}, {field}{at}: {reason}")


@lru_cache(maxsize=4096)
def _parse(text: str) -> Expression:
    return parse(text)
