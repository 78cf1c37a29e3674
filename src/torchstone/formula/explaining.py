"""How a number comes about: the tree of nested modules and terms, with every value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torchstone.formula.binding import bind, called_entry
from torchstone.formula.computation import Computation, given_values
from torchstone.formula.consistency import require_sound
from torchstone.formula.database import Formulas
from torchstone.formula.evaluating import Budget, evaluate
from torchstone.formula.expression import Call, Expression, Number, Parameter, Sum, Value, rewrite, walk
from torchstone.formula.names import short_name, with_variant
from torchstone.formula.printing import show
from torchstone.formula.templates import template_of
from torchstone.record.formula import FormulaEntry, Quantity

MAX_LINES = 2_000


@dataclass(frozen=True, slots=True)
class Step:
    """One line: a module or a term, what it comes to, and what it is made of."""

    text: str
    value: Value
    parts: tuple["Step", ...] = ()


def explanation(formulas: Formulas, name: str, quantity: Quantity, parameters: Mapping[str, Value]) -> str:
    """The evaluation tree as text."""
    entry = formulas.find(name)
    require_sound(formulas, entry, quantity)
    computation = Computation(formulas, quantity)
    values = given_values(entry, quantity, parameters)
    computation.of_entry(entry, values)  # within the limits of an evaluation, or an error before anything is drawn
    return as_text(_Explaining(computation).of_entry(entry, values))


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


class _Explaining:
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
