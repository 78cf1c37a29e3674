"""Expression -> Python statements that compute it, broken into lines as a formatter would."""

from torchstone.formula.expression import (
    Call,
    Choose,
    Expression,
    Function,
    Logical,
    Negate,
    Number,
    Parameter,
    Product,
    Sum,
    children,
    with_children,
)
from torchstone.formula.parsing import CHOOSE, PRODUCT, SIGN
from torchstone.formula.python_text import PythonPrinter

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
        if prefix and self._indent + len(prefix) + len(function) + 1 > LINE:
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
