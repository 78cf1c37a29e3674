"""Expression -> text; reading the text again gives the same tree."""

from collections.abc import Callable
from fractions import Fraction

from torchstone.formula.language.expression import (
    Binary,
    Call,
    Choose,
    Compare,
    Connective,
    Expression,
    Function,
    Logical,
    Negate,
    Not,
    Number,
    Operator,
    Parameter,
    Product,
    Sum,
)
from torchstone.formula.language.parse import AND, ATOM, CHOOSE, COMPARE, NOT, OR, POWER, PRODUCT, SIGN, SUM


def show(root: Expression, *, plain: bool = False) -> str:
    """The template of a tree; plain text is for people: without sigils and brackets, and S instead of S=S."""
    return Printer(plain=plain).text(root, CHOOSE)


class Printer:
    """One method for each kind of node; a printer of another notation replaces some of them."""

    def __init__(self, *, plain: bool) -> None:
        self._plain = plain

    def level(self, node: Expression) -> int:
        """How tightly the text of a node binds."""
        return level_of(node)

    def text(self, node: Expression, level: int) -> str:
        """A node where at least this level is needed; what binds more loosely gets brackets."""
        rule: Callable[[object], str] = getattr(self, _RULES[type(node)])
        return f"({rule(node)})" if self.level(node) < level else rule(node)

    def number(self, node: Number) -> str:
        """A number, with its sign."""
        value = node.value
        return f"{value.numerator}/{value.denominator}" if isinstance(value, Fraction) else str(value)

    def parameter(self, node: Parameter) -> str:
        """A parameter."""
        return node.name if self._plain else f"${{{node.name}}}"

    def call(self, node: Call) -> str:
        """A call with its arguments."""
        parts = [self.text(argument, CHOOSE) for argument in node.arguments]
        parts += [self._named(name, value) for name, value in node.named]
        return f"{node.module if self._plain else f'{{{node.module}}}'}({', '.join(parts)})"

    def _named(self, name: str, value: Expression) -> str:
        if self._plain and value == Parameter(name):
            return name  # S=S says no more to people than S
        return f"{name}={self.text(value, CHOOSE)}"

    def negate(self, node: Negate) -> str:
        """The other sign."""
        level = ATOM + 1 if isinstance(node.operand, Number) else SIGN  # a sign before a number belongs to the number
        return f"-{self.text(node.operand, level)}"

    def sum(self, node: Sum) -> str:
        """Terms with their signs between them."""
        first, *others = node.terms
        return self.text(first, PRODUCT) + "".join(self._later_term(term) for term in others)

    def _later_term(self, term: Expression) -> str:
        if isinstance(term, Number) and term.value < 0:
            return f" - {self.number(Number(-term.value))}"
        if not isinstance(term, Negate):
            return f" + {self.text(term, PRODUCT)}"
        operand = term.operand
        level = ATOM + 1 if isinstance(operand, Number) else PRODUCT
        return f" - {self.text(operand, level)}"

    def product(self, node: Product) -> str:
        """Factors."""
        first, *others = node.factors
        head = self.text(first, SIGN if isinstance(first, Product) or _is_rounded(first) else PRODUCT)
        return " * ".join([head, *(self.text(factor, SIGN) for factor in others)])

    def binary(self, node: Binary) -> str:
        """Two operands."""
        left, right = node.left, node.right
        if node.operator is Operator.POWER:
            return f"{self.text(left, ATOM)}**{self.text(right, SIGN)}"
        shown = self.text(left, PRODUCT)
        if _reads_as_fraction(node):
            shown = f"({shown})"
        return f"{shown} {node.operator} {self.text(right, SIGN)}"

    def function(self, node: Function) -> str:
        """A function with its arguments."""
        return f"{node.name}({', '.join(self.text(argument, CHOOSE) for argument in node.arguments)})"

    def compare(self, node: Compare) -> str:
        """A comparison."""
        return f"{self.text(node.left, SUM)} {node.relation} {self.text(node.right, SUM)}"

    def logical(self, node: Logical) -> str:
        """Conditions joined by a word."""
        tighter = level_of(node) + 1
        return f" {node.connective} ".join(self.text(condition, tighter) for condition in node.conditions)

    def negation(self, node: Not) -> str:
        """The opposite of a condition."""
        return f"not {self.text(node.condition, NOT)}"

    def choose(self, node: Choose) -> str:
        """One of two."""
        condition, chosen = self.text(node.condition, OR), self.text(node.chosen, OR)
        return f"{chosen} if {condition} else {self.text(node.otherwise, CHOOSE)}"


_RULES: dict[type[Expression], str] = {
    Number: "number",
    Parameter: "parameter",
    Call: "call",
    Negate: "negate",
    Sum: "sum",
    Product: "product",
    Binary: "binary",
    Function: "function",
    Compare: "compare",
    Logical: "logical",
    Not: "negation",
    Choose: "choose",
}


def level_of(node: Expression) -> int:
    """How tightly the outermost operation of a node binds."""
    match node:
        case Number():
            return _level_of_number(node)
        case Binary():
            return POWER if node.operator is Operator.POWER else PRODUCT
        case Logical():
            return AND if node.connective is Connective.AND else OR
        case _:
            return _LEVELS.get(type(node), ATOM)


_LEVELS: dict[type[Expression], int] = {
    Negate: SIGN,
    Sum: SUM,
    Product: PRODUCT,
    Compare: COMPARE,
    Not: NOT,
    Choose: CHOOSE,
}


def _level_of_number(node: Number) -> int:
    if isinstance(node.value, Fraction):
        return PRODUCT
    return ATOM if node.value >= 0 else SIGN


def _is_rounded(node: Expression) -> bool:
    """Whether a product after it would be hard to read without brackets: (h // n) * n."""
    return isinstance(node, Binary) and node.operator in (Operator.FLOOR_DIVIDE, Operator.MODULO)


def _reads_as_fraction(node: Binary) -> bool:
    """Whether `left / right` would be read as one number."""
    if node.operator is not Operator.DIVIDE or not isinstance(node.right, Number):
        return False
    return isinstance(node.left, Number) and isinstance(node.left.value, int)
