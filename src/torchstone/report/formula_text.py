"""A formula entry on the terminal: what it says, where it holds, why it is trusted."""

from collections.abc import Mapping, Sequence

from torchstone.formula.expression import Expression, Negate, Number, Product, Sum
from torchstone.formula.growth import Growth, Reign
from torchstone.formula.printing import show
from torchstone.formula.templates import name_of
from torchstone.record.formula import FormulaEntry, Quantity
from torchstone.report.text import Paint, aligned, plain

WIDTH = 100
_LONGEST_LEADING = 90


def entry_text(entry: FormulaEntry, formulas: Mapping[Quantity, Expression], paint: Paint = plain) -> str:
    """An entry with its formulas in one of their forms."""
    head = [paint(name_of(entry), "bold"), *_facts(entry)]
    parts = ["\n".join(head)]
    parts += [f"{paint(quantity, 'bold')}\n{formula_text(tree)}" for quantity, tree in formulas.items()]
    return "\n\n".join(parts)


def _facts(entry: FormulaEntry) -> list[str]:
    facts = [
        ("status", _status(entry)),
        ("parameters", ", ".join(_parameter(entry, name) for name in entry.all_parameters)),
    ]
    facts += [("holds where", condition.replace("${", "").replace("}", "")) for condition in entry.domain]
    facts += [("assuming", assumption) for assumption in entry.assumptions]
    if entry.aliases:
        facts.append(("also", ", ".join(entry.aliases)))
    if entry.code_location is not None:
        location = entry.code_location
        facts.append(("source", f"{location.file}:{location.line_start}-{location.line_end}"))
    if entry.validation.notes:
        facts.append(("notes", entry.validation.notes))
    return [aligned(facts, header=False)]


def _parameter(entry: FormulaEntry, name: str) -> str:
    default = entry.defaults.get(name)
    return name if default is None else f"{name} = {default.replace('${', '').replace('}', '')}"


def _status(entry: FormulaEntry) -> str:
    validation, evidence = entry.validation, entry.evidence
    parts = [validation.status + (f" ({validation.validator})" if validation.validator else "")]
    if validation.date:
        parts.append(validation.date)
    if evidence is not None:
        routes = f" by {', '.join(evidence.routes)}" if evidence.routes else ""
        parts.append(f"{evidence.points_checked} points{routes}, largest error {evidence.max_error}")
    parts += [f"{library} {version}" for library, version in entry.versions.items()]
    return "; ".join(parts)


def formula_text(tree: Expression) -> str:
    """A formula, one term a line where it is long."""
    whole = show(tree, plain=True)
    if len(whole) <= WIDTH:
        return f"  {whole}"
    if isinstance(tree, Product) and isinstance(tree.factors[-1], Sum):
        head = " * ".join(show(factor, plain=True) for factor in tree.factors[:-1])
        return f"  {head} * (\n{_one_term_a_line(tree.factors[-1])}\n  )"
    return _one_term_a_line(tree) if isinstance(tree, Sum) else f"  {whole}"


def _one_term_a_line(tree: Sum) -> str:
    first, *others = tree.terms
    return "\n".join([f"    {show(first, plain=True)}", *(_later_term(term) for term in others)])


def _later_term(term: Expression) -> str:
    match term:
        case Negate():
            return f"  - {show(term.operand, plain=True)}"
        case Number() if term.value < 0:
            return f"  - {show(Number(-term.value), plain=True)}"
        case _:
            return f"  + {show(term, plain=True)}"


def growth_text(quantity: Quantity, growths: Sequence[Growth], paint: Paint = plain) -> str:
    """How a quantity grows with each parameter."""
    rows = [(f"{quantity} with", "grow as", "times")]
    for growth in growths:
        leading = "" if growth.leading is None or growth.order == 0 else show(growth.leading, plain=True)
        rows.append((growth.parameter, growth.text, leading if len(leading) <= _LONGEST_LEADING else "a longer sum"))
    return aligned(rows, paint=paint)


def reigns_text(quantity: Quantity, name: str, reigns: Sequence[Reign], paint: Paint = plain) -> str:
    """Which part is the largest from where on."""
    rows = [(f"from {name} =", f"largest part of {quantity}", "share there")]
    rows += [(f"{reign.first:,}", reign.part, f"{100 * reign.share:.1f}%") for reign in reigns]
    return aligned(rows, right=(0, 2), paint=paint)
