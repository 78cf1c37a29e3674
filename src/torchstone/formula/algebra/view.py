"""One entry as people ask about it: its formulas in several forms, how they grow, and what is largest in them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from torchstone.errors import FormulaError
from torchstone.formula.algebra.growth import (
    DominantRange,
    Growth,
    Solution,
    dominant_ranges,
    growth_of,
    largest_within,
)
from torchstone.formula.algebra.polynomial import expand, simplified
from torchstone.formula.algebra.simplify import factored, inlined, named_parts, within_domain
from torchstone.formula.database.files import Formulas
from torchstone.formula.database.templates import default_of, domain_of, name_of, require_sound, template_of
from torchstone.formula.language.evaluate import evaluate
from torchstone.formula.language.expression import (
    Binary,
    Expression,
    Function,
    FunctionName,
    Number,
    Operator,
    Parameter,
    Product,
    Sum,
    Value,
    free_parameters,
    substitute,
)
from torchstone.record.formula import FormulaEntry, Quantity


class Form(StrEnum):
    """How a formula is written."""

    WRITTEN = "written"  # with its calls of other modules
    EXPANDED = "expanded"  # without calls, multiplied out
    FACTORED = "factored"  # without calls, as a product


@dataclass(frozen=True, slots=True)
class FormulaView:
    """An entry, with some of its parameters replaced by numbers or expressions."""

    formulas: Formulas
    entry: FormulaEntry
    given: Mapping[str, Expression] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = [name for name in self.given if name not in self.entry.all_parameters]
        if unknown:
            known = ", ".join(self.entry.all_parameters)
            msg = f"{name_of(self.entry)} has no parameter {', '.join(unknown)}; it has {known}"
            raise FormulaError(msg)

    def formula(self, quantity: Quantity, form: Form = Form.WRITTEN) -> Expression:
        """The formula of one quantity in one form."""
        match form:
            case Form.WRITTEN:
                require_sound(self.formulas, self.entry, quantity)
                return substitute(template_of(self.entry, quantity), self.given)
            case Form.EXPANDED:
                return simplified(self.without_calls(quantity))
            case Form.FACTORED:
                return factored(self.without_calls(quantity))

    def without_calls(self, quantity: Quantity) -> Expression:
        """The formula written out, shortened by what the domain says and with the defaults that follow from it."""
        tree = inlined(self.formulas, self.entry, quantity)
        return substitute(within_domain(tree, list(domain_of(self.entry))), {**self.given, **self.determined})

    @property
    def determined(self) -> dict[str, Expression]:
        """Parameters that are not given, but whose default follows from given ones: head_dim from hidden_size.

        A default that is a plain number, such as `dtype_bytes = 2`, is a choice and stays a parameter.
        """
        return self._following(numbers=False)

    def _following(self, *, numbers: bool) -> dict[str, Expression]:
        found: dict[str, Expression] = {}
        for name in self.entry.all_parameters:
            default = None if name in self.given else default_of(self.entry, name)
            if default is None:
                continue
            needed = free_parameters(default)
            if (needed or numbers) and all(one in self.given or one in found for one in needed):
                found[name] = simplified(substitute(default, {**self.given, **found}))
        return found

    def growth(self, quantity: Quantity) -> list[Growth]:
        """How the quantity grows with each parameter, in the order in which the entry names them."""
        places = {name: place for place, name in enumerate(self.entry.all_parameters)}
        return sorted(growth_of(self.without_calls(quantity)), key=lambda one: places.get(one.parameter, len(places)))

    def dominant_terms(self, quantity: Quantity, name: str) -> list[DominantRange]:
        """Which named part of the formula is the largest, from which value of a parameter on."""
        settled = {other: tree for other, tree in self._following(numbers=True).items() if other != name}
        parts = named_parts(self.formulas, self.entry, quantity, {**self.given, **settled})
        return self._dominant_ranges(parts, name)

    def dominant_powers(self, quantity: Quantity, name: str) -> list[DominantRange]:
        """Which power of a parameter is the largest, from which of its values on."""
        tree = self._settled(self.without_calls(quantity), name)
        parts = {}
        for exponent, factor in expand(tree).by_power_of(name).items():
            label = f"{name}**{exponent}" if exponent > 1 else name
            power = Binary(Operator.POWER, Parameter(name), Number(exponent))
            parts[label if exponent else "what does not grow"] = Product((factor.tree, power))
        return self._dominant_ranges(parts, name)

    def _dominant_ranges(self, parts: Mapping[str, Expression], name: str) -> list[DominantRange]:
        self._settled(Sum((Number(0), *parts.values())), name)  # names all missing values at once
        return dominant_ranges({label: self._settled(part, name) for label, part in parts.items()}, name, {})

    def dominant_times(self, rates: Mapping[str, tuple[tuple[Quantity, ...], float]], name: str) -> list[DominantRange]:
        """Which of several sums of quantities takes longest at its rate, from which value of a parameter on."""
        parts = {}
        for label, (quantities, rate) in rates.items():
            whole = Sum((Number(0), *(inlined(self.formulas, self.entry, one) for one in quantities)))
            parts[label] = Product((Number(Fraction(1) / Fraction(rate)), substitute(whole, self.given)))
        return self._dominant_ranges(parts, name)

    def largest(
        self, quantities: tuple[Quantity, ...], name: str, limit: Value, *, devices: int = 1
    ) -> Solution | None:
        """The largest value of a parameter for which these quantities together stay within a limit.

        Weights are divided among the devices, all else is counted in full.
        """
        self._require_known_parameter(name)
        trees = {one: inlined(self.formulas, self.entry, one) for one in quantities}
        if devices > 1 and Quantity.WEIGHTS in trees:
            share = Binary(Operator.DIVIDE, trees[Quantity.WEIGHTS], Number(devices))
            trees[Quantity.WEIGHTS] = Function(FunctionName.CEIL, (share,))
        cost = self._settled(substitute(Sum((Number(0), *trees.values())), self.given), name)
        return largest_within(cost, name, limit, domain=self._domain_over(name))

    def allows(self, name: str, value: int) -> bool:
        """Whether the domain contains one value of a parameter, the others as they are given or by default."""
        return all(evaluate(condition, {name: value}) != 0 for condition in self._domain_over(name))

    def number(self, name: str) -> Value | None:
        """The value of a parameter, given or by default; None where the entry does not have it or has no value."""
        if name not in self.entry.all_parameters:
            return None
        tree = self.given.get(name) or default_of(self.entry, name)
        return None if tree is None else expand(tree).number

    def _domain_over(self, name: str) -> list[Expression]:
        return [self._settled(substitute(one, self.given), name) for one in domain_of(self.entry)]

    def values_at(self, quantities: tuple[Quantity, ...], name: str, value: int) -> dict[Quantity, Value]:
        """The quantities at one value of a parameter; an empty name where all parameters have values."""
        trees = {one: substitute(inlined(self.formulas, self.entry, one), self.given) for one in quantities}
        return {one: evaluate(self._settled(tree, name), {name: value}) for one, tree in trees.items()}

    def _settled(self, tree: Expression, name: str) -> Expression:
        """A formula in which only one parameter is left: the others by their defaults, or it is an error."""
        if name:
            self._require_known_parameter(name)
        for _ in range(len(self.entry.all_parameters) + 1):
            others = [other for other in free_parameters(tree) if other != name]
            if not others:
                return tree
            defaults = {other: default_of(self.entry, other) for other in others}
            missing = [other for other, default in defaults.items() if default is None]
            if missing:
                msg = f"give values for {', '.join(missing)}, such as {missing[0]}=8"
                raise FormulaError(msg)
            known = {other: default for other, default in defaults.items() if default is not None}
            tree = substitute(substitute(tree, known), self.given)
        msg = "circular dependency between the given values and the defaults; give numbers"
        raise FormulaError(msg)

    def _require_known_parameter(self, name: str) -> None:
        if name in self.given:
            msg = f"{name} has a given value; drop {name}=VALUE to solve for it"
            raise FormulaError(msg)
        if name not in self.entry.all_parameters:
            known = ", ".join(self.entry.all_parameters)
            msg = f"{name_of(self.entry)} has no parameter {name}; it has {known}"
            raise FormulaError(msg)
