"""The templates of an entry as trees, arguments bound to parameters, and consistency checks."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from torchstone.errors import FormulaError, UnknownFormulaError
from torchstone.formula.database.files import Formulas, key_of, short_name, split_variant, with_variant
from torchstone.formula.language.evaluate import evaluate
from torchstone.formula.language.expression import Call, Expression, Parameter, Value, free_parameters, walk
from torchstone.formula.language.parse import TemplateError, is_parameter_name, parse
from torchstone.record.formula import FormulaEntry, Quantity
from torchstone.units import many

# --- Templates as trees; errors name entry, field and character ---


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
    """An error with its position: entry, field and character, counted from 1."""
    at = f", character {position + 1}" if position >= 0 else ""
    return FormulaError(f"{name_of(entry)}, {field}{at}: {reason}")


@lru_cache(maxsize=4096)
def _parse(text: str) -> Expression:
    return parse(text)


# --- Binding the arguments of a call to the parameters of the entry it calls ---


T = TypeVar("T")


def called_entry(formulas: Formulas, caller: FormulaEntry, quantity: Quantity, module: str) -> FormulaEntry:
    """The entry that a template means by {module}: one of its dependencies by its last name, or any by its path."""
    path, variant = split_variant(module)
    depends = caller.depends(quantity)
    meant = [one for one in depends if path in (one, short_name(split_variant(one)[0])) or module == one]
    if len(meant) == 1:
        base, own_variant = split_variant(meant[0])
        return formulas.find(with_variant(base, variant or own_variant))
    if len(meant) > 1:
        msg = f"{module} may be any of {', '.join(meant)}; write the whole path"
        raise UnknownFormulaError(msg)
    return formulas.find(module)


def bind(entry: FormulaEntry, quantity: Quantity, arguments: Sequence[T], named: Mapping[str, T]) -> dict[str, T]:
    """The given arguments by parameter; too many, too few, unknown or doubled ones are refused."""
    parameters = entry.parameters(quantity)
    if len(arguments) > len(parameters):
        msg = f"{_signature(entry, quantity)} takes {many(len(parameters), 'argument')}, not {len(arguments)}"
        raise FormulaError(msg)
    bound = dict(zip(parameters, arguments, strict=False))
    for name, value in named.items():
        if name not in parameters:
            msg = f"{_signature(entry, quantity)} has no parameter {name}"
            raise FormulaError(msg)
        if name in bound:
            msg = f"{_signature(entry, quantity)} is given {name} twice"
            raise FormulaError(msg)
        bound[name] = value
    missing = [name for name in parameters if name not in bound and name not in entry.defaults]
    if missing:
        msg = f"{_signature(entry, quantity)}: missing required parameters {', '.join(missing)}"
        raise FormulaError(msg)
    return bound


def complete(entry: FormulaEntry, quantity: Quantity, given: Mapping[str, Value]) -> dict[str, Value]:
    """All parameters of a quantity with their values, in their order: the given ones, and the others by default."""
    values = dict(given)
    for name in entry.parameters(quantity):
        _settle(entry, name, values)
    return {name: values[name] for name in entry.parameters(quantity)}


def _settle(entry: FormulaEntry, name: str, values: dict[str, Value]) -> None:
    if name in values:
        return
    default = default_of(entry, name)
    if default is None:
        msg = f"{name_of(entry)} needs a value for {name}"
        raise FormulaError(msg)
    for other in free_parameters(default):  # no circles: `consistency` has looked
        _settle(entry, other, values)
    values[name] = evaluate(default, values)


def _signature(entry: FormulaEntry, quantity: Quantity) -> str:
    return f"{name_of(entry)}({', '.join(entry.parameters(quantity))})"


# --- Checks before anything is computed: names, arguments, modules, circular dependencies ---


MAX_MODULES = 40  # nested in each other


def require_sound(formulas: Formulas, entry: FormulaEntry, quantity: Quantity) -> None:
    """Refuse an entry that is wrong, or that reaches a wrong one or itself; each is looked at once."""
    _descend(formulas, entry, quantity, ())


def problems_of(formulas: Formulas) -> Iterator[str]:
    """The mistakes in a database, at most one sentence for each entry and quantity."""
    for entry in formulas.entries.values():
        try:
            check_alone(entry)
        except FormulaError as error:
            yield str(error)
            continue
        for quantity in known_quantities(entry):
            try:
                require_sound(formulas, entry, quantity)
            except FormulaError as error:
                yield str(error)


def known_quantities(entry: FormulaEntry) -> list[Quantity]:
    """The quantities that an entry has a formula for."""
    return [quantity for quantity in Quantity if entry.template(quantity) is not None]


def _descend(formulas: Formulas, entry: FormulaEntry, quantity: Quantity, above: tuple[str, ...]) -> None:
    key = key_of(entry.module_path, entry.variant)
    if (key, quantity) in formulas.sound:
        return
    if key in above:
        circle = " -> ".join(name_of(formulas.entries[one]) for one in (*above[above.index(key) :], key))
        msg = f"circular dependency in the formulas for {quantity}: {circle}"
        raise FormulaError(msg)
    if len(above) >= MAX_MODULES:
        msg = f"{name_of(formulas.entries[above[0]])} nests more than {MAX_MODULES} modules in each other"
        raise FormulaError(msg)
    _check_names(entry)
    _check_template(entry, quantity)
    for called in called_entries(formulas, entry, quantity):
        _descend(formulas, called, quantity, (*above, key))
    formulas.sound.add((key, quantity))


def check_alone(entry: FormulaEntry) -> None:
    """Refuse parameters that cannot be one, and texts that do not parse or name an unknown parameter."""
    _check_names(entry)
    for quantity in known_quantities(entry):
        _check_template(entry, quantity)


def _check_names(entry: FormulaEntry) -> None:
    for name in (*entry.all_parameters, *entry.defaults):
        if not is_parameter_name(name):
            msg = f"{name_of(entry)} has a parameter {name!r}, which is not a valid parameter name"
            raise FormulaError(msg)
    for analysis in (entry.flop_analysis, entry.memory_analysis):
        if analysis is not None and len(set(analysis.parameters)) < len(analysis.parameters):
            msg = f"{name_of(entry)} names a parameter twice: {', '.join(analysis.parameters)}"
            raise FormulaError(msg)
    _check_conditions(entry)


def _check_template(entry: FormulaEntry, quantity: Quantity) -> None:
    """One quantity alone: an answer about FLOPs need not wait until the long texts about memory are read."""
    for field, tree in _trees(entry, quantity):
        _require_known(entry, field, tree, entry.parameters(quantity))


def _check_conditions(entry: FormulaEntry) -> None:
    needs = {}
    for name in entry.defaults:
        default = default_of(entry, name)
        if default is not None:
            _require_known(entry, f"default of {name}", default, entry.all_parameters)
            _refuse_calls(entry, f"default of {name}", default)
            needs[name] = free_parameters(default)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        msg = f"circular dependency in the defaults of {name_of(entry)}: {' -> '.join(reversed(error.args[1]))}"
        raise FormulaError(msg) from error
    for number, condition in enumerate(domain_of(entry), start=1):
        _require_known(entry, f"domain {number}", condition, entry.all_parameters)
        _refuse_calls(entry, f"domain {number}", condition)


def _require_known(entry: FormulaEntry, field: str, tree: Expression, parameters: tuple[str, ...]) -> None:
    for node in walk(tree):
        if isinstance(node, Parameter) and node.name not in parameters:
            known = ", ".join(parameters) or "none"
            reason = f"the parameter {node.name} is not declared (declared: {known})"
            raise mistake(entry, field, reason, position=node.position)


def _refuse_calls(entry: FormulaEntry, field: str, tree: Expression) -> None:
    for node in walk(tree):
        if isinstance(node, Call):
            raise mistake(entry, field, f"{node.module} may not be called here", position=node.position)


def called_entries(formulas: Formulas, entry: FormulaEntry, quantity: Quantity) -> Iterator[FormulaEntry]:
    """The entries that one formula and its breakdown call, in the order of reading; a wrong call is refused."""
    for field, tree in _trees(entry, quantity):
        for node in walk(tree):
            if not isinstance(node, Call):
                continue
            try:
                called = called_entry(formulas, entry, quantity, node.module)
                bind(called, quantity, node.arguments, dict(node.named))
                template_of(called, quantity)
            except FormulaError as error:
                raise mistake(entry, field, str(error), position=node.position) from error
            yield called


def _trees(entry: FormulaEntry, quantity: Quantity) -> Iterator[tuple[str, Expression]]:
    yield FIELD_OF[quantity], template_of(entry, quantity)
    if quantity is Quantity.FLOPS:
        for part, text in entry.flop_analysis.breakdown.items():
            yield f"breakdown of {part}", parsed(entry, f"breakdown of {part}", text)
