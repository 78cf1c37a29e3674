"""A formula as a tree of exact numbers, parameters, operations and calls of other modules' formulas.

Trees are made by `parse.parse` or by hand, printed by `print.show` and computed by `evaluate.evaluate`. Equal trees are
equal formulas as written; `algebra.polynomial.same_value` says whether they are equal in value.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction

Value = int | Fraction


class Operator(StrEnum):
    """Operations of two operands that are grouped from the left."""

    DIVIDE = "/"
    FLOOR_DIVIDE = "//"
    MODULO = "%"
    POWER = "**"


class Relation(StrEnum):
    """Comparisons; they give 1 or 0."""

    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    EQUAL = "=="
    NOT_EQUAL = "!="


class Connective(StrEnum):
    """Words between conditions; what is decided by the first is not computed further."""

    AND = "and"
    OR = "or"


class FunctionName(StrEnum):
    """The functions of the language."""

    MIN = "min"
    MAX = "max"
    CEIL = "ceil"
    FLOOR = "floor"
    CEIL_LOG2 = "ceil_log2"  # the steps of a binary search; 0 for numbers up to 1
    LOG2 = "log2"  # the nearest number in double precision; 0 for numbers up to 1


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number; whole ones are int."""

    value: Value

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", exact(self.value))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the module: ${name}."""

    name: str
    position: int = field(default=-1, compare=False)  # in the template; -1 where there is none


@dataclass(frozen=True, slots=True)
class Call:
    """The formula of another module, of the same quantity: {Module}(1, name=2)."""

    module: str
    arguments: tuple["Expression", ...] = ()
    named: tuple[tuple[str, "Expression"], ...] = ()
    position: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Negate:
    """The operand with the other sign."""

    operand: "Expression"


@dataclass(frozen=True, slots=True)
class Sum:
    """Two terms or more; a difference is a sum with a negated term."""

    terms: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Product:
    """Two factors or more."""

    factors: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Binary:
    """An operation of exactly two operands."""

    operator: Operator
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the language applied to arguments."""

    name: FunctionName
    arguments: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """1 where the relation holds, else 0."""

    relation: Relation
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Logical:
    """Two conditions or more, joined by one word."""

    connective: Connective
    conditions: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """1 where the condition is 0, else 0."""

    condition: "Expression"


@dataclass(frozen=True, slots=True)
class Choose:
    """`chosen if condition else otherwise`; only one of the two is computed."""

    condition: "Expression"
    chosen: "Expression"
    otherwise: "Expression"


Expression = (
    Number | Parameter | Call | Negate | Sum | Product | Binary | Function | Compare | Logical | Not | Choose
)  # fmt: skip


def exact(value: Value) -> Value:
    """The same number, as an int where it is whole."""
    return value.numerator if value.denominator == 1 else value


def children(node: Expression) -> tuple[Expression, ...]:
    """The operands of one node, in the order of reading; those of a call are its arguments."""
    match node:
        case Number() | Parameter():
            return ()
        case Call():
            return node.arguments + tuple(value for _, value in node.named)
        case Negate():
            return (node.operand,)
        case Not():
            return (node.condition,)
        case Binary() | Compare():
            return (node.left, node.right)
        case Choose():
            return (node.condition, node.chosen, node.otherwise)
        case Sum() | Product() | Function() | Logical():
            return _listed(node)


def _listed(node: Sum | Product | Function | Logical) -> tuple[Expression, ...]:
    match node:
        case Sum():
            return node.terms
        case Product():
            return node.factors
        case Function():
            return node.arguments
        case Logical():
            return node.conditions


def with_children(node: Expression, operands: tuple[Expression, ...]) -> Expression:
    """The same node over other operands."""
    match node:
        case Number() | Parameter():
            return node
        case Call():
            split = len(node.arguments)
            names = (name for name, _ in node.named)
            return replace(node, arguments=operands[:split], named=tuple(zip(names, operands[split:], strict=True)))
        case Negate():
            return Negate(operands[0])
        case Not():
            return Not(operands[0])
        case Binary() | Compare():
            return replace(node, left=operands[0], right=operands[1])
        case Choose():
            return Choose(*operands)
        case Sum() | Product() | Function() | Logical():
            return _with_listed(node, operands)


def _with_listed(node: Sum | Product | Function | Logical, operands: tuple[Expression, ...]) -> Expression:
    match node:
        case Sum():
            return Sum(operands)
        case Product():
            return Product(operands)
        case Function():
            return replace(node, arguments=operands)
        case Logical():
            return replace(node, conditions=operands)


def walk(root: Expression) -> Iterator[Expression]:
    """Every node of a tree, each before its operands."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def depth_of(root: Expression) -> int:
    """The number of nodes on the longest way down."""
    deepest, waiting = 0, [(root, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting.extend((child, depth + 1) for child in children(node))
    return deepest


def free_parameters(root: Expression) -> tuple[str, ...]:
    """The names that need a value, each once, in the order of reading."""
    return tuple(dict.fromkeys(node.name for node in walk(root) if isinstance(node, Parameter)))


def called_modules(root: Expression) -> tuple[str, ...]:
    """The modules whose formulas are called, each once, in the order of reading."""
    return tuple(dict.fromkeys(node.module for node in walk(root) if isinstance(node, Call)))


def substitute(root: Expression, values: Mapping[str, "Expression | Value"]) -> Expression:
    """The tree with some parameters replaced by expressions or numbers, all at once."""
    trees = {name: Number(value) if isinstance(value, Value) else value for name, value in values.items()}
    return rewrite(root, lambda node: trees.get(node.name, node) if isinstance(node, Parameter) else node)


def rewrite(root: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The tree with every node changed, operands first; what `change` gives back is not looked into again."""
    operands = children(root)
    changed = tuple(rewrite(operand, change) for operand in operands)
    same = all(new is old for new, old in zip(changed, operands, strict=True))
    return change(root if same else with_children(root, changed))
