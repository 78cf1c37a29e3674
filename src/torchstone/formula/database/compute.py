"""A module class and its parameters -> FLOPs and bytes through all nested modules, and the computation as a tree."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from operator import index
from pathlib import Path
from typing import Literal, TypedDict, overload

from torchstone.errors import FormulaError, OutsideDomainError, ZeroDivisorError
from torchstone.formula.database.files import (
    Formulas,
    key_of,
    load_formulas,
    own_database,
    short_name,
    with_variant,
)
from torchstone.formula.database.templates import (
    bind,
    called_entry,
    complete,
    domain_of,
    name_of,
    require_sound,
    template_of,
)
from torchstone.formula.language.evaluate import Budget, evaluate
from torchstone.formula.language.expression import (
    Call,
    Expression,
    Number,
    Parameter,
    Sum,
    Value,
    free_parameters,
    rewrite,
    walk,
)
from torchstone.formula.language.print import show
from torchstone.record.formula import FormulaEntry, Quantity

# --- Evaluating one quantity through all nested modules ---


def given_values(entry: FormulaEntry, quantity: Quantity, parameters: Mapping[str, Value]) -> dict[str, Value]:
    """The given values as exact numbers, for the parameters of this quantity; raises FormulaError for unknown names."""
    known, own = entry.all_parameters, entry.parameters(quantity)
    unknown = [name for name in parameters if name not in known]
    if unknown:
        msg = f"{name_of(entry)} has no parameter {', '.join(unknown)}; it has {', '.join(known)}"
        raise FormulaError(msg)
    values = {name: _exact(name, value) for name, value in parameters.items() if name in own}
    return bind(entry, quantity, (), values)


def _exact(name: str, value: Value) -> Value:
    try:
        number = value if isinstance(value, Fraction) else index(value)
    except TypeError as error:
        msg = f"the value of {name} is {value!r}, which is not an exact number; give an int or a Fraction"
        raise FormulaError(msg) from error
    if number < 0:
        msg = f"the value of {name} is {number}; sizes and counts are not negative"
        raise FormulaError(msg)
    return number


_MAX_KNOWN = 50_000  # values that are kept for one quantity: a search over many sizes must not fill the memory


class Computation:
    """One quantity over any number of nested modules; equal calls are computed once."""

    def __init__(self, formulas: Formulas, quantity: Quantity) -> None:
        self.formulas = formulas
        self.quantity = quantity
        self._budget = Budget()
        self._known = formulas.values[quantity]
        if len(self._known) > _MAX_KNOWN:
            self._known.clear()

    def of_entry(self, entry: FormulaEntry, given: Mapping[str, Value]) -> Value:
        """The value of an entry's template at the given arguments."""
        values = self.settled(entry, given)
        key = (key_of(entry.module_path, entry.variant), tuple(values.values()))
        if key not in self._known:
            self._known[key] = self.of_tree(entry, template_of(entry, self.quantity), values)
        return self._known[key]

    def settled(self, entry: FormulaEntry, given: Mapping[str, Value]) -> dict[str, Value]:
        """All parameters with their values; a point outside the entry's domain is refused."""
        values = complete(entry, self.quantity, given)
        for condition in domain_of(entry):
            needed = free_parameters(condition)
            if set(needed) <= values.keys() and not self._holds(condition, values):
                point = ", ".join(f"{name}={values[name]}" for name in needed)
                msg = f"{name_of(entry)} holds only where {show(condition, plain=True)}, not at {point}"
                raise OutsideDomainError(msg)
        return values

    def _holds(self, condition: Expression, values: Mapping[str, Value]) -> bool:
        try:
            return evaluate(condition, values, budget=self._budget) != 0
        except ZeroDivisorError:  # a size of 0 that another is a multiple of
            return False

    def of_tree(self, entry: FormulaEntry, tree: Expression, values: Mapping[str, Value]) -> Value:
        """The value of a piece of an entry's template."""

        def call(node: Call, arguments: tuple[Value, ...], named: dict[str, Value]) -> Value:
            called = called_entry(self.formulas, entry, self.quantity, node.module)
            return self.of_entry(called, bind(called, self.quantity, arguments, named))

        return evaluate(tree, values, call=call, budget=self._budget)


# --- Explaining a value: the tree of nested modules and terms ---


MAX_LINES = 2_000


@dataclass(frozen=True, slots=True)
class Step:
    """One line of an explanation: a module or a term, its value, and its parts."""

    text: str
    value: Value
    parts: tuple["Step", ...] = ()


def explanation(formulas: Formulas, name: str, quantity: Quantity, parameters: Mapping[str, Value]) -> str:
    """The evaluation tree as text."""
    entry = formulas.find(name)
    require_sound(formulas, entry, quantity)
    computation = Computation(formulas, quantity)
    values = given_values(entry, quantity, parameters)
    computation.of_entry(entry, values)  # raises before anything is drawn if it exceeds a limit
    return as_text(_Explanation(computation).of_entry(entry, values))


def as_text(root: Step) -> str:
    """A tree drawn with lines; one too long to read is cut off, and says so."""
    lines: list[str] = []
    for line in _lines(root, "", ""):
        if len(lines) == MAX_LINES:
            lines.append(f"... more than {MAX_LINES} lines; explain a smaller module")
            break
        lines.append(line)
    return "\n".join(lines)


def _lines(step: Step, branch: str, indent: str) -> Iterator[str]:
    yield f"{branch}{step.text} = {shown(step.value)}"
    for number, part in enumerate(step.parts, start=1):
        last = number == len(step.parts)
        yield from _lines(part, f"{indent}{'└── ' if last else '├── '}", f"{indent}{'    ' if last else '│   '}")


def shown(value: Value) -> str:
    """A number with its thousands apart; a fraction as it is."""
    return f"{value:,}" if isinstance(value, int) else str(value)


class _Explanation:
    """Builds the tree of one value; equal modules at equal arguments are explained once."""

    def __init__(self, computation: Computation) -> None:
        self._computation = computation
        self._known: dict[str, Step] = {}

    def of_entry(self, entry: FormulaEntry, given: Mapping[str, Value]) -> Step:
        """The line of a module, and below it its terms."""
        values = self._computation.settled(entry, given)
        name = with_variant(short_name(entry.module_path), entry.variant)
        text = f"{name}({', '.join(str(value) for value in values.values())})"
        key = f"{entry.module_path} {text}"
        if key not in self._known:
            tree = template_of(entry, self._computation.quantity)
            parts = tuple(self._of_term(entry, term, values) for term in _terms(tree))
            self._known[key] = Step(text, self._computation.of_entry(entry, given), parts)
        return self._known[key]

    def _of_term(self, entry: FormulaEntry, term: Expression, values: Mapping[str, Value]) -> Step:
        nested: list[Step] = []
        quantity = self._computation.quantity

        def call(node: Call, arguments: tuple[Value, ...], named: dict[str, Value]) -> Value:
            called = called_entry(self._computation.formulas, entry, quantity, node.module)
            step = self.of_entry(called, bind(called, quantity, arguments, named))
            line = Step(f"{{{node.module}}}{step.text[step.text.index('(') :]}", step.value, step.parts)
            if all(line.text != one.text for one in nested):
                nested.append(line)
            return step.value

        value = evaluate(term, values, call=call, budget=Budget())
        if isinstance(term, Call) and len(nested) == 1:
            return nested[0]
        return Step(show(_with_values(term, values)), value, tuple(nested))


def _terms(tree: Expression) -> tuple[Expression, ...]:
    return tree.terms if isinstance(tree, Sum) else (tree,)


def _with_values(term: Expression, values: Mapping[str, Value]) -> Expression:
    """The term with its parameters replaced by their values, and arguments of calls computed."""

    def change(node: Expression) -> Expression:
        if isinstance(node, Parameter):
            return Number(values[node.name])
        if not isinstance(node, Call):
            return node
        computed = tuple(_computed(argument) for argument in node.arguments)
        return Call(node.module, computed, tuple((name, _computed(value)) for name, value in node.named))

    return rewrite(term, change)


def _computed(argument: Expression) -> Expression:
    has_call = any(isinstance(node, Call) for node in walk(argument))
    return argument if has_call else Number(evaluate(argument, {}))


# --- Public functions: compute_flops, compute_memory ---


class MemoryBytes(TypedDict):
    """The bytes of one call; None where an entry has no formula for it."""

    reads: Value
    writes: Value
    intermediates: Value | None
    weights: Value | None


@overload
def compute_flops(
    name: str, /, *, explain: Literal[False] = ..., formulas: Formulas | None = ..., **parameters: Value
) -> Value: ...
@overload
def compute_flops(
    name: str, /, *, explain: Literal[True], formulas: Formulas | None = ..., **parameters: Value
) -> str: ...
def compute_flops(
    name: str, /, *, explain: bool = False, formulas: Formulas | None = None, **parameters: Value
) -> Value | str:
    """Compute the FLOPs of one call of a module class, or with explain=True the tree of nested modules and terms.

    Raises FormulaError for an unknown class, a missing parameter, or parameters outside the domain of the formula.

    >>> import torchstone as ts
    >>> ts.compute_flops("torch.nn.Linear", batch_elements=2048, input_features=4096, output_features=4096)
    68719476736
    """
    known = formulas or available_formulas()
    if explain:
        return explanation(known, name, Quantity.FLOPS, parameters)
    return compute(known, name, Quantity.FLOPS, parameters)


@overload
def compute_memory(
    name: str, /, *, explain: Literal[False] = ..., formulas: Formulas | None = ..., **parameters: Value
) -> MemoryBytes: ...
@overload
def compute_memory(
    name: str, /, *, explain: Literal[True], formulas: Formulas | None = ..., **parameters: Value
) -> str: ...
def compute_memory(
    name: str, /, *, explain: bool = False, formulas: Formulas | None = None, **parameters: Value
) -> MemoryBytes | str:
    """Compute the bytes that one call of a module class reads, writes and keeps live; None where there is no formula.

    >>> import torchstone as ts
    >>> found = ts.compute_memory("torch.nn.Linear", batch_elements=2, input_features=8, output_features=4)
    >>> found["writes"]  # two bytes an element by default
    16
    """
    known = formulas or available_formulas()
    entry = known.find(name)
    if explain:
        asked = [quantity for quantity in Quantity if quantity is not Quantity.FLOPS and entry.template(quantity)]
        return "\n\n".join(f"{one}\n{explanation(known, name, one, parameters)}" for one in asked)
    return MemoryBytes(
        reads=compute(known, name, Quantity.READS, parameters),
        writes=compute(known, name, Quantity.WRITES, parameters),
        intermediates=_if_known(known, entry, name, Quantity.INTERMEDIATES, parameters),
        weights=_if_known(known, entry, name, Quantity.WEIGHTS, parameters),
    )


def _if_known(
    formulas: Formulas, entry: FormulaEntry, name: str, quantity: Quantity, parameters: Mapping[str, Value]
) -> Value | None:
    return None if entry.template(quantity) is None else compute(formulas, name, quantity, parameters)


def compute(formulas: Formulas, name: str, quantity: Quantity, parameters: Mapping[str, Value]) -> Value:
    """One quantity of a module class; everything it reaches is checked before anything is computed."""
    entry = formulas.find(name)
    require_sound(formulas, entry, quantity)
    return Computation(formulas, quantity).of_entry(entry, given_values(entry, quantity, parameters))


def available_formulas() -> Formulas:
    """The shipped formulas and the user's own, read again only when the user's file has changed."""
    path = own_database()
    try:
        seen = path.stat()
    except OSError:
        return _load(path.parent, 0, 0)
    return _load(path.parent, seen.st_mtime_ns, seen.st_size)


@lru_cache(maxsize=4)
def _load(home: Path, _changed_ns: int, _size_bytes: int) -> Formulas:
    return load_formulas(home)
