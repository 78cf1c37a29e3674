"""Expression -> Python expressions and statements that compute it."""

from collections.abc import Callable
from fractions import Fraction

from torchstone.formula.language.expression import (
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
    Product,
    Relation,
    Sum,
    children,
    with_children,
)
from torchstone.formula.language.parse import ATOM, CHOOSE, NOT, PRODUCT, SIGN
from torchstone.formula.language.print import Printer, level_of

# --- Expressions ---


_FUNCTIONS = {
    FunctionName.MIN: "smallest",
    FunctionName.MAX: "largest",
    FunctionName.CEIL: "rounded_up",
    FunctionName.FLOOR: "rounded_down",
    FunctionName.CEIL_LOG2: "ceil_log2",
    FunctionName.LOG2: "log2",
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


# --- Statements, broken into lines as a formatter would ---


LINE = 120
_STEP = 4
_SHORT = 30  # what is not worth a line of its own
_PAIR = 2
RETURN = "return "
_NEW = ": Value = "  # a name that is used for the first time


class Statements:
    """The body of one function; what is too long for a line is computed before, under a name of its own."""

    def __init__(self, printer: PythonPrinter, indent: int) -> None:
        self._printer = printer
        self._indent = indent
        self._steps = 0
        self.lines: list[str] = []

    def add(self, text: str) -> None:
        """One line as it is."""
        self.lines.append(" " * self._indent + text)

    def assign(self, prefix: str, node: Expression) -> None:
        """Compute a node and return it, or give it a name."""
        text = self._printer.text(node, CHOOSE)
        if self._indent + len(prefix) + len(text) <= LINE:
            self.add(prefix + text)
            return
        match node:
            case Choose():
                self._choose(prefix, node)
            case Sum() | Product():
                self._operands(prefix, node)
            case Call() | Function():
                self._arguments(prefix, node)
            case _:
                shorter = node if isinstance(node, Logical) else self._shorter(node, _SHORT)
                self.add(prefix + self._printer.text(shorter, CHOOSE))

    def _shorter(self, node: Expression, limit: int) -> Expression:
        """The node over operands that are no longer than the limit."""
        return with_children(node, tuple(self._named(child, limit) for child in children(node)))

    def _named(self, node: Expression, limit: int) -> Expression:
        """The node itself where it is short, else the name under which it is computed before."""
        if len(self._printer.text(node, CHOOSE)) <= limit:
            return node
        self._steps += 1
        name = f"_step_{self._steps}"
        self.assign(name + _NEW, node)
        return Parameter(name)

    def _choose(self, prefix: str, node: Choose) -> None:
        """A choice as if and else, so that only one of the two is computed."""
        condition = self._printer.condition(node.condition)
        if self._indent + len(condition) + _STEP > LINE:
            condition = self._printer.condition(self._named(node.condition, 0))
        if prefix.endswith(_NEW):
            name = prefix.removesuffix(_NEW)
            self.add(f"{name}: Value")
            prefix = f"{name} = "
        self.add(f"if {condition}:")
        self.assign_below(prefix, node.chosen)
        self.add("else:")
        self.assign_below(prefix, node.otherwise)

    def assign_below(self, prefix: str, node: Expression) -> None:
        """Compute a node under an `if` or `else`."""
        self._indent += _STEP
        self.assign(prefix, node)
        self._indent -= _STEP

    def _operands(self, prefix: str, node: Sum | Product) -> None:
        """One operand a line in brackets; two of them are made to fit one line."""
        operands = children(node)
        if len(operands) == _PAIR:
            limit = max(_SHORT, (LINE - self._indent - len(prefix)) // _PAIR - _STEP)
            self.add(prefix + self._printer.text(self._shorter(node, limit), CHOOSE))
            return
        shorter = self._shorter(node, LINE - self._indent - 2 * _STEP)
        text = self._printer.text(shorter, CHOOSE)
        if self._indent + len(prefix) + len(text) <= LINE:
            self.add(prefix + text)
            return
        self.add(f"{prefix}(")
        if self._indent + _STEP + len(text) <= LINE:
            self.add(" " * _STEP + text)
        else:
            for number, operand in enumerate(children(shorter)):
                self.add(" " * _STEP + self._operand(node, number, operand))
        self.add(")")

    def _operand(self, node: Sum | Product, number: int, operand: Expression) -> str:
        if isinstance(node, Product):
            return ("* " if number else "") + self._printer.text(operand, SIGN)
        if number == 0:
            return self._printer.text(operand, PRODUCT)
        if isinstance(operand, Negate):
            return f"- {self._printer.text(operand.operand, SIGN)}"
        if isinstance(operand, Number) and operand.value < 0:
            return f"- {self._printer.text(Number(-operand.value), SIGN)}"
        return f"+ {self._printer.text(operand, PRODUCT)}"

    def _arguments(self, prefix: str, node: Call | Function) -> None:
        """The arguments on a line of their own, or one a line."""
        shorter = self._shorter(node, LINE - self._indent - 3 * _STEP - _SHORT)
        text = self._printer.text(shorter, CHOOSE)
        if self._indent + len(prefix) + len(text) <= LINE:
            self.add(prefix + text)
            return
        assert isinstance(shorter, Call | Function)  # noqa: S101 - only its operands were replaced
        function, arguments = self._printer.call_parts(shorter)
        too_long = self._indent + len(prefix) + len(function) + 1 > LINE
        if prefix and too_long and self._indent + _STEP + len(function) + 1 <= LINE:
            self.add(f"{prefix}(")
            self._indent += _STEP
            self._exploded(function, arguments)
            self._indent -= _STEP
            self.add(")")
        else:
            self._exploded(prefix + function, arguments)

    def _exploded(self, head: str, arguments: list[str]) -> None:
        self.add(f"{head}(")
        if self._indent + _STEP + len(", ".join(arguments)) <= LINE:
            self.add(" " * _STEP + ", ".join(arguments))
        else:
            for argument in arguments:
                self.add(" " * _STEP + f"{argument},")
        self.add(")")
