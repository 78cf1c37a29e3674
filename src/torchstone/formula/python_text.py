"""Expression -> the text of a Python expression that computes it."""

from collections.abc import Callable
from fractions import Fraction

from torchstone.formula.expression import (
    Binary,
    Call,
    Choose,
    Compare,
    Expression,
    Function,
    FunctionName,
    Logical,
    Negate,
    Not,
    Number,
    Operator,
    Parameter,
    Relation,
)
from torchstone.formula.parsing import ATOM, CHOOSE, NOT, PRODUCT, SIGN
from torchstone.formula.printing import Printer, level_of

_FUNCTIONS = {
    FunctionName.MIN: "smallest",
    FunctionName.MAX: "largest",
    FunctionName.CEIL: "rounded_up",
    FunctionName.FLOOR: "rounded_down",
    FunctionName.CEIL_LOG2: "ceil_log2",
}

CallText = Callable[[Call], tuple[str, list[tuple[str, Expression]]]]  # the function, and its keyword arguments


def literal(text: str) -> str:
    """A text as a Python literal; nothing in it can end the literal."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in ('"', "\\"):
        return f"\\{character}"
    return character if character.isprintable() else character.encode("unicode_escape").decode()


class PythonPrinter(Printer):
    """The language in Python's notation; what Python would round or print otherwise goes through `exact`."""

    def __init__(self, call_text: CallText) -> None:
        super().__init__(plain=True)
        self._call_text = call_text

    def level(self, node: Expression) -> int:
        """Function calls hold together by themselves."""
        match node:
            case Number(value=Fraction()) | Binary(operator=Operator.DIVIDE) | Compare() | Logical() | Not():
                return ATOM
            case Binary(operator=Operator.POWER) if not _native_power(node):
                return ATOM
            case _:
                return level_of(node)

    def number(self, node: Number) -> str:
        """A whole number, or a fraction."""
        value = node.value
        return str(value) if isinstance(value, int) else f"_exact.fraction({value.numerator}, {value.denominator})"

    def call(self, node: Call) -> str:
        """A call of another generated class, all arguments by name."""
        return _joined(*self.call_parts(node))

    def call_parts(self, node: Call | Function) -> tuple[str, list[str]]:
        """The function and the texts of its arguments."""
        if isinstance(node, Function):
            return f"_exact.{_FUNCTIONS[node.name]}", [self.text(argument, CHOOSE) for argument in node.arguments]
        function, arguments = self._call_text(node)
        return function, [f"{name}={self.text(value, CHOOSE)}" for name, value in arguments]

    def negate(self, node: Negate) -> str:
        """The other sign."""
        return f"-{self.text(node.operand, SIGN)}"

    def binary(self, node: Binary) -> str:
        """Division and powers keep fractions exact."""
        if node.operator is Operator.DIVIDE:
            return f"_exact.divide({self.text(node.left, CHOOSE)}, {self.text(node.right, CHOOSE)})"
        if node.operator is not Operator.POWER:
            return f"{self.text(node.left, PRODUCT)} {node.operator} {self.text(node.right, SIGN)}"
        if _native_power(node):
            return f"{self.text(node.left, ATOM)}**{self.text(node.right, ATOM)}"
        return f"_exact.power({self.text(node.left, CHOOSE)}, {self.text(node.right, CHOOSE)})"

    def function(self, node: Function) -> str:
        """A function of `exact`."""
        return _joined(*self.call_parts(node))

    def compare(self, node: Compare) -> str:
        """A comparison as a number."""
        return f"_exact.truth({self.condition(node)})"

    def logical(self, node: Logical) -> str:
        """Joined conditions as a number."""
        return f"_exact.truth({self.condition(node)})"

    def negation(self, node: Not) -> str:
        """The opposite of a condition as a number."""
        return f"_exact.truth({self.condition(node)})"

    def choose(self, node: Choose) -> str:
        """Python's own choice."""
        chosen, otherwise = self.text(node.chosen, CHOOSE + 1), self.text(node.otherwise, CHOOSE)
        return f"{chosen} if {self.condition(node.condition)} else {otherwise}"

    def condition(self, node: Expression, level: int = CHOOSE) -> str:
        """A node where Python wants a truth value."""
        match node:
            case Compare():
                text = super().compare(node)
            case Logical():
                own = level_of(node) + 1
                text = f" {node.connective} ".join(self.condition(one, own) for one in node.conditions)
            case Not():
                text = f"not {self.condition(node.condition, NOT)}"
            case _:
                return self.condition(Compare(Relation.NOT_EQUAL, node, Number(0)), level)
        return f"({text})" if level_of(node) < level else text


def _joined(function: str, arguments: list[str]) -> str:
    return f"{function}({', '.join(arguments)})"


def _native_power(node: Binary) -> bool:
    match node.right:
        case Number(value=int(exponent)) if exponent >= 0:
            return isinstance(node.left, Parameter)
        case _:
            return False
