"""Formulas + measured module calls -> where they differ, and in which term."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torchstone.errors import FormulaError, UnknownFormulaError
from torchstone.formula.computation import Computation, given_values
from torchstone.formula.computing import compute
from torchstone.formula.database import Formulas
from torchstone.formula.derive.observation import Observation
from torchstone.formula.expression import Value
from torchstone.formula.names import with_variant
from torchstone.formula.templates import parsed
from torchstone.record.formula import FormulaEntry, Quantity

_COUNTED = (Quantity.FLOPS, Quantity.READS, Quantity.WRITES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A formula that gives another number than was measured."""

    module_path: str
    variant: str
    quantity: Quantity
    parameters: Mapping[str, int]
    computed: Value
    measured: int
    term: str  # the part of the formula that differs, as far as it can be told


@dataclass(slots=True, kw_only=True)
class Validated:
    """What a comparison found."""

    checked: dict[str, int] = field(default_factory=dict)  # entry -> calls that agreed
    differences: list[Difference] = field(default_factory=list)
    outside: dict[str, str] = field(default_factory=dict)  # entry -> why a call could not be compared
    unknown: dict[str, int] = field(default_factory=dict)  # class without a formula -> calls


def validate(formulas: Formulas, observations: Iterable[Observation], variant: str = "") -> Validated:
    """Compare every call with its formula: FLOPs, bytes read, written and held, all exact."""
    result = Validated()
    told: set[tuple[str, tuple[tuple[str, int], ...]]] = set()
    for seen in observations:
        entry = entry_for(formulas, seen.class_name, variant)
        if entry is None and variant:
            continue  # what other code paths share is compared on the usual one
        if entry is None:
            result.unknown[seen.class_name] = result.unknown.get(seen.class_name, 0) + 1
            continue
        name = with_variant(entry.module_path, entry.variant)
        values = parameters_for(entry, seen)
        key = (name, tuple(values.items()))
        if key in told:
            continue
        told.add(key)
        try:
            found = _difference(formulas, entry, values, seen)
        except FormulaError as error:
            result.outside[name] = str(error)
            continue
        if found is None:
            result.checked[name] = result.checked.get(name, 0) + 1
        else:
            result.differences.append(found)
    return result


def entry_for(formulas: Formulas, class_path: str, variant: str) -> FormulaEntry | None:
    """The entry of a class for exactly this code path; "" is the usual one."""
    try:
        return formulas.find(with_variant(class_path, variant))
    except UnknownFormulaError:
        return None


def parameters_for(entry: FormulaEntry, seen: Observation) -> dict[str, int]:
    """The parameters of an entry as a call has them."""
    return {name: seen.reading.value(name) for name in entry.all_parameters}


def computed_cost(formulas: Formulas, entry: FormulaEntry, values: Mapping[str, int]) -> dict[Quantity, Value]:
    """FLOPs and bytes by formula."""
    name = with_variant(entry.module_path, entry.variant)
    return {quantity: compute(formulas, name, quantity, dict(values)) for quantity in _COUNTED}


def _difference(
    formulas: Formulas, entry: FormulaEntry, values: Mapping[str, int], seen: Observation
) -> Difference | None:
    name = with_variant(entry.module_path, entry.variant)
    for quantity, measured in _measured(entry, seen).items():
        computed = compute(formulas, name, quantity, dict(values))
        if computed != measured:
            return Difference(
                module_path=entry.module_path,
                variant=entry.variant,
                quantity=quantity,
                parameters=dict(values),
                computed=computed,
                measured=measured,
                term=_term(formulas, entry, values, seen) if quantity is Quantity.FLOPS else "",
            )
    return None


def _measured(entry: FormulaEntry, seen: Observation) -> dict[Quantity, int]:
    """What a call cost and held, as far as the entry has formulas for it and it was looked at."""
    found = {
        Quantity.FLOPS: seen.whole.flops,
        Quantity.READS: seen.whole.reads,
        Quantity.WRITES: seen.whole.writes,
        Quantity.INTERMEDIATES: seen.peak_bytes,
        Quantity.WEIGHTS: seen.held_bytes,
    }
    return {one: value for one, value in found.items() if value is not None and entry.template(one) is not None}


def _term(formulas: Formulas, entry: FormulaEntry, values: Mapping[str, int], seen: Observation) -> str:
    """The part of the breakdown that differs from the ops that ran; "" where the difference is inside a call."""
    measured: dict[str, int] = {}
    for op in seen.ops:
        measured[op.signature.op] = measured.get(op.signature.op, 0) + op.cost.flops
    parts = {name: text for name, text in entry.flop_analysis.breakdown.items() if name.startswith("aten.")}
    computation = Computation(formulas, Quantity.FLOPS)
    given = given_values(entry, Quantity.FLOPS, dict(values))
    for name in dict.fromkeys((*parts, *measured)):
        tree = parsed(entry, f"breakdown of {name}", parts.get(name, "0"))
        value = computation.of_tree(entry, tree, given)
        if value != measured.get(name, 0):
            return f"{name}: {parts.get(name, '0')} is {value:,}, measured {measured.get(name, 0):,}"
    return ""
