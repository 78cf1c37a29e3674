"""Expression -> LaTeX, in the order in which the formula is written."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from torchstone.formula.database.files import short_name
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
)
from torchstone.formula.language.parse import ATOM, CHOOSE, NOT, OR, PRODUCT, SIGN, SUM
from torchstone.formula.language.print import level_of

_RELATIONS = {
    Relation.LESS: "<",
    Relation.LESS_EQUAL: r"\le",
    Relation.GREATER: ">",
    Relation.GREATER_EQUAL: r"\ge",
    Relation.EQUAL: "=",
    Relation.NOT_EQUAL: r"\ne",
}
_BRACKETS = {FunctionName.CEIL: (r"\lceil", r"\rceil"), FunctionName.FLOOR: (r"\lfloor", r"\rfloor")}


def latex(root: Expression) -> str:
    r"""A formula for a paper: fractions as \frac, roundings as brackets, names upright."""
    return _text(root, CHOOSE)


def _text(node: Expression, level: int) -> str:
    shown = _RULES[type(node)](node)
    return rf"\left({shown}\right)" if level_of(node) < level and not _closed(node) else shown


def _closed(node: Expression) -> bool:
    """Whether the notation itself holds the node together."""
    if isinstance(node, Number):
        return isinstance(node.value, Fraction) and node.value > 0
    return isinstance(node, Binary) and node.operator in (Operator.DIVIDE, Operator.FLOOR_DIVIDE)


def _number(node: Number) -> str:
    value = node.value
    if isinstance(value, int):
        return str(value)
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _name(text: str) -> str:
    escaped = text.replace("_", r"\_")
    return escaped if len(text) == 1 else rf"\mathrm{{{escaped}}}"


def _parameter(node: Parameter) -> str:
    return _name(node.name)


def _call(node: Call) -> str:
    parts = [_text(argument, CHOOSE) for argument in node.arguments]
    parts += [f"{_name(name)}={_text(value, CHOOSE)}" for name, value in node.named]
    return rf"{_name(short_name(node.module))}\left({', '.join(parts)}\right)"


def _negate(node: Negate) -> str:
    return f"-{_text(node.operand, SIGN)}"


def _sum(node: Sum) -> str:
    first, *others = node.terms
    text = _text(first, PRODUCT)
    for term in others:
        if isinstance(term, Negate):
            text += f" - {_text(term.operand, PRODUCT)}"
        elif isinstance(term, Number) and term.value < 0:
            text += f" - {_number(Number(-term.value))}"
        else:
            text += f" + {_text(term, PRODUCT)}"
    return text


def _product(node: Product) -> str:
    text = _text(node.factors[0], PRODUCT)
    for factor in node.factors[1:]:
        shown = _text(factor, SIGN + 1)
        text += rf" \cdot {shown}" if shown[0].isdigit() else f" {shown}"
    return text


def _binary(node: Binary) -> str:
    left, right = node.left, node.right
    match node.operator:
        case Operator.DIVIDE:
            return rf"\frac{{{_text(left, CHOOSE)}}}{{{_text(right, CHOOSE)}}}"
        case Operator.FLOOR_DIVIDE:
            return rf"\left\lfloor \frac{{{_text(left, CHOOSE)}}}{{{_text(right, CHOOSE)}}} \right\rfloor"
        case Operator.MODULO:
            return rf"{_text(left, PRODUCT)} \bmod {_text(right, SIGN)}"
        case Operator.POWER:
            base = rf"\left({_text(left, CHOOSE)}\right)" if level_of(left) < ATOM else _text(left, ATOM)
            return f"{base}^{{{_text(right, CHOOSE)}}}"


def _function(node: Function) -> str:
    inner = ", ".join(_text(argument, CHOOSE) for argument in node.arguments)
    if node.name in _BRACKETS:
        opening, closing = _BRACKETS[node.name]
        return rf"\left{opening} {inner} \right{closing}"
    if node.name is FunctionName.LOG2:
        return rf"\log_2 {_text(node.arguments[0], SIGN + 1)}"
    if node.name is FunctionName.CEIL_LOG2:
        return rf"\left\lceil \log_2 {_text(node.arguments[0], SIGN + 1)} \right\rceil"
    return rf"\{node.name}\left({inner}\right)"


def _compare(node: Compare) -> str:
    return f"{_text(node.left, SUM)} {_RELATIONS[node.relation]} {_text(node.right, SUM)}"


def _logical(node: Logical) -> str:
    tighter = level_of(node) + 1
    return rf" \text{{ {node.connective} }} ".join(_text(condition, tighter) for condition in node.conditions)


def _negation(node: Not) -> str:
    return rf"\lnot {_text(node.condition, NOT)}"


def _choose(node: Choose) -> str:
    chosen = rf"{_text(node.chosen, OR)} & \text{{if }} {_text(node.condition, OR)}"
    rows = rf"{chosen} \\ {_text(node.otherwise, OR)} & \text{{otherwise}}"
    return rf"\begin{{cases}} {rows} \end{{cases}}"


_RULES: dict[type[Expression], Callable[[Any], str]] = {
    Number: _number,
    Parameter: _parameter,
    Call: _call,
    Negate: _negate,
    Sum: _sum,
    Product: _product,
    Binary: _binary,
    Function: _function,
    Compare: _compare,
    Logical: _logical,
    Not: _negation,
    Choose: _choose,
}
