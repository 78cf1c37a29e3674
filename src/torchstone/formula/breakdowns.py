"""Whether the named parts of a formula add up to it."""

from collections.abc import Iterator

from torchstone.errors import FormulaError
from torchstone.formula.database import Formulas
from torchstone.formula.expression import Expression, Number, Sum
from torchstone.formula.inlining import inlined, inlined_term
from torchstone.formula.polynomial import same_value
from torchstone.formula.simplifying import within_domain
from torchstone.formula.templates import domain_of, name_of, parsed, template_of
from torchstone.record.formula import FormulaEntry, Quantity


def breakdown_problems(formulas: Formulas) -> Iterator[str]:
    """One sentence for each entry whose parts are not shown to add up to its formula."""
    for entry in formulas.entries.values():
        if entry.flop_analysis.breakdown and not adds_up(formulas, entry):
            yield f"{name_of(entry)}: the parts of the breakdown do not add up to the formula"


def adds_up(formulas: Formulas, entry: FormulaEntry) -> bool:
    """Whether formula and breakdown are equal: as they are written, or written out within the domain."""
    try:
        whole, parts = template_of(entry, Quantity.FLOPS), _sum_of_parts(entry)
        if same_value(whole, parts):
            return True
        conditions = list(domain_of(entry))
        written_out = within_domain(inlined(formulas, entry, Quantity.FLOPS), conditions)
        parts = within_domain(inlined_term(formulas, entry, Quantity.FLOPS, parts), conditions)
        return same_value(written_out, parts)
    except FormulaError:
        return False


def _sum_of_parts(entry: FormulaEntry) -> Expression:
    texts = entry.flop_analysis.breakdown.items()
    return Sum((Number(0), *(parsed(entry, f"breakdown of {part}", text) for part, text in texts)))
