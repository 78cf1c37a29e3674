"""What is wrong with entries, found before anything is computed: names, arguments, modules, circles."""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from torchstone.errors import FormulaError
from torchstone.formula.binding import bind, called_entry
from torchstone.formula.database import Formulas
from torchstone.formula.expression import Call, Expression, Parameter, free_parameters, walk
from torchstone.formula.names import key_of
from torchstone.formula.parsing import is_parameter_name
from torchstone.formula.templates import FIELD_OF, default_of, domain_of, mistake, name_of, parsed, template_of
from torchstone.record.formula import FormulaEntry, Quantity

MAX_MODULES = 40  # nested in each other


def require_sound(formulas: Formulas, entry: FormulaEntry, quantity: Quantity) -> None:
    """Refuse an entry that is wrong, or that reaches a wrong one or itself; each is looked at once."""
    _descend(formulas, entry, quantity, ())


def problems_of(formulas: Formulas) -> Iterator[str]:
    """Everything that is wrong with a database, one sentence for each entry and quantity at most."""
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
        msg = f"the formulas for {quantity} go in a circle: {circle}"
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
            msg = f"{name_of(entry)} has a parameter {name!r}, which is no name or a word of the language"
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
        msg = f"the defaults of {name_of(entry)} go in a circle: {' -> '.join(reversed(error.args[1]))}"
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
