"""The output of `torchstone formula` on the terminal: entries, values, solutions, derivations and differences."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torchstone.formula.database.compute import shown
from torchstone.formula.database.files import with_variant
from torchstone.formula.database.templates import name_of
from torchstone.formula.language.expression import Expression, Negate, Number, Product, Sum, Value
from torchstone.formula.language.print import show
from torchstone.record.formula import FormulaEntry, Quantity, TradeOff
from torchstone.report.text import Paint, aligned, plain
from torchstone.units import many, show_bytes, show_count, show_seconds

if TYPE_CHECKING:
    from torchstone.formula.algebra.growth import DominantRange, Growth, Solution
    from torchstone.formula.database.changes import Change
    from torchstone.formula.derive.validate import Difference

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
    facts += [("setting", f"{name} = {value}") for name, value in entry.settings.items()]
    facts += [("assuming", assumption) for assumption in entry.assumptions]
    if entry.built_by is not None:
        facts.append(("built by", entry.built_by.recipe or entry.built_by.model))
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
        parts.append(f"{many(evidence.points_checked, 'point')}{routes}, largest error {evidence.max_error}")
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


def growth_text(quantity: Quantity, growths: "Sequence[Growth]", paint: Paint = plain) -> str:
    """How a quantity grows with each parameter."""
    rows = [(f"{quantity} with", "grow as", "times")]
    for growth in growths:
        leading = "" if growth.leading is None or growth.order == 0 else show(growth.leading, plain=True)
        rows.append((growth.parameter, growth.text, leading if len(leading) <= _LONGEST_LEADING else "a longer sum"))
    return aligned(rows, paint=paint)


def dominance_text(
    quantity: Quantity, name: str, dominant_ranges: "Sequence[DominantRange]", paint: Paint = plain
) -> str:
    """Which part is the largest from where on."""
    rows = [(f"from {name} =", f"largest part of {quantity}", "share there")]
    rows += [(f"{one_range.first:,}", one_range.part, f"{100 * one_range.share:.1f}%") for one_range in dominant_ranges]
    return aligned(rows, right=(0, 2), paint=paint)


def list_text(entries: Mapping[str, FormulaEntry], own: frozenset[str]) -> str:
    """The table of entries; `own` holds the keys of the user's own."""
    rows = [("class", "status", "points", "from", "parameters")]
    rows += [
        (
            name_of(entry),
            entry.validation.status,
            "-" if entry.evidence is None else str(entry.evidence.points_checked),
            "own" if key in own else "shipped",
            ", ".join(entry.flop_analysis.parameters),
        )
        for key, entry in entries.items()
    ]
    return aligned(rows, right=(2,))


def latex_text(formulas: Mapping[Quantity, Expression]) -> str:
    """Each formula as one line of LaTeX."""
    from torchstone.formula.database.latex import latex

    return "\n".join(rf"\mathrm{{{quantity}}} = {latex(tree)}" for quantity, tree in formulas.items())


def values_text(values: Mapping[Quantity, Value]) -> str:
    """The exact value of each quantity, and the same in short."""
    rows = []
    for quantity, value in values.items():
        short = show_count if quantity is Quantity.FLOPS else show_bytes
        rows.append((str(quantity), shown(value), f"({short(value)})" if isinstance(value, int) else ""))
    return aligned(rows, right=(1,), header=False)


def solution_text(
    parameter: str, limit: int, solution: "Solution | None", costs: Mapping[Quantity, Value], *, in_bytes: bool
) -> str:
    """The largest value that fits, and what one more would need."""
    short = show_bytes if in_bytes else show_count
    if solution is None:
        return f"no {parameter} fits in {short(limit)}"
    parts = ", ".join(f"{quantity} {short(int(cost))}" for quantity, cost in costs.items())
    return (
        f"{parameter} = {solution.value} fits in {short(limit)}: {parts}\n"
        f"{parameter} = {solution.value + 1} would need {short(int(solution.next_cost))}"
    )


_BAR = 24  # characters for the whole memory of a device


def trade_off_text(found: TradeOff) -> str:
    """What fits on a device, a chart of memory and time, and where compute-bound turns memory-bound."""
    unknown, limit = found.parameter, show_bytes(found.memory_bytes)
    shared = f" on each of {found.devices}" if found.devices > 1 else ""
    where = f"{limit} of {found.hardware.title}{shared}"
    size = f"no {unknown} fits in {where}" if found.fits is None else f"{unknown} = {found.fits:,} fits in {where}"
    turns = ", ".join(f"{bound}-bound from {unknown} = {first:,}" for first, bound in found.bounds)
    header = (unknown, "memory", "compute", "traffic", "bound by", f"share of {limit}")
    rows = [
        (
            f"{one.value:,}",
            show_bytes(one.memory_bytes),
            show_seconds(one.compute_s),
            show_seconds(one.traffic_s),
            one.bound,
            _bar(one.memory_bytes, found.memory_bytes),
        )
        for one in found.points
    ]
    note = f"roofline at the peak rate for {found.element_type}; traffic without fusion, devices without communication"
    return "\n".join([size, turns, "", aligned([header, *rows], right=(0, 1, 2, 3)), "", note])


def _bar(used: int, limit: int) -> str:
    return f"{'#' * _BAR}> does not fit" if used > limit else "#" * round(_BAR * used / limit)


def derived_text(entries: Sequence[FormulaEntry], refused: Mapping[str, str]) -> str:
    """Derived formulas as templates, and the reason for each class without one."""
    return "\n\n".join([*map(_derived, entries), *map(_refused, refused.values())])


_AGENT = "let an agent write it with `torchstone formula agent`, which is judged at the same hidden points"
_ADVICE = {  # what a reason contains -> what to do about it
    "has no price": "give the op a price with `torchstone cost --prices`, or replace it in the module",
    "different ops at equal parameters": "name what decides between them as an argument of the recipe, in --sizes",
    "too few settings": "keep the sizes of the recipe on one side of this case, or raise its sizes to a multiple in it",
    "is not a polynomial": f"fix this size in the recipe and derive the others, or {_AGENT}",
    "are not a polynomial": f"fix this size in the recipe and derive the others, or {_AGENT}",
    "contradict": f"branch on a size that --sizes names, not on values, or {_AGENT}",
    "cannot be run": "let the recipe raise its sizes to ones that the module takes",
}


def _refused(reason: str) -> str:
    advice = next((text for part, text in _ADVICE.items() if part in reason), "")
    return f"refused: {reason}" + (f"\n  what to do: {advice}" if advice else "")


def _derived(entry: FormulaEntry) -> str:
    memory, evidence = entry.memory_analysis, entry.evidence
    lines = [
        f"{with_variant(entry.module_path, entry.variant)}({', '.join(entry.all_parameters)})",
        f"  flops   {entry.flop_analysis.formula_template}",
    ]
    if memory is not None:
        lines += [f"  reads   {memory.reads_template}", f"  writes  {memory.writes_template}"]
        lines += [f"  live    {memory.intermediates_template}"] if memory.intermediates_template else []
        lines += [f"  weights {memory.weights_template}"] if memory.weights_template else []
    lines += [f"  where   {condition}" for condition in entry.domain]
    if evidence is not None:
        lines.append(f"  exact at {many(evidence.points_checked, 'setting')} ({', '.join(evidence.routes)})")
    return "\n".join(lines)


def changes_text(changes: "Sequence[Change]") -> str:
    """How formulas changed from one database to another, term by term."""
    lines = []
    for change in changes:
        lines.append(change.title)
        for field, (old, new) in change.fields.items():
            lines += [f"  {field}", *(f"  - {term}" for term in old), *(f"  + {term}" for term in new)]
    differing = sum(change.differs for change in changes)
    added = sum(change.kind == "added" for change in changes)
    removed = sum(change.kind == "removed" for change in changes)
    lines.append(f"{many(differing, 'formula differs', 'formulas differ')}, {added} are new, {removed} are gone.")
    return "\n".join(lines)


def validation_text(
    agree: Mapping[str, int],
    differences: "Sequence[Difference]",
    outside: Mapping[str, str],
    not_built: Sequence[str],
    refuted: Mapping[str, str] | None = None,
) -> str:
    """Calls that agree with their formula, differences, and what could not be compared."""
    parts = [
        aligned([("class", "calls that agree"), *((name, f"{calls:,}") for name, calls in agree.items())], right=(1,))
    ]
    parts += [_difference(one) for one in differences]
    parts += [f"differs: {name}: {why}" for name, why in (refuted or {}).items()]
    parts += [f"not compared: {why}" for why in outside.values()]
    if not_built:
        parts.append(f"not compared, since nothing builds them: {', '.join(not_built)}")
    num_wrong = len(differences) + len(refuted or {})
    parts.append(
        f"{many(sum(agree.values()), 'call')} of "
        f"{many(len(agree), 'entry agrees', 'entries agree')}, {many(num_wrong, 'entry differs', 'entries differ')}."
    )
    return "\n\n".join(parts)


def _difference(one: "Difference") -> str:
    where = ", ".join(f"{name}={value}" for name, value in one.parameters.items())
    numbers = f"{one.computed:,} {one.quantity} by formula, {one.measured:,} measured"
    return f"differs: {one.module_path} at {where}: {numbers}" + (f"\n  {one.term}" if one.term else "")
