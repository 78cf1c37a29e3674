"""Polynomial -> text in the language of templates."""

from torchstone.formula.expression import Value
from torchstone.formula.polynomial import (
    BIT_LENGTH,
    CHOOSE,
    FLOOR_DIVIDE,
    MIN,
    MODULO,
    ONE,
    Applied,
    Atom,
    Polynomial,
    Powers,
)
from torchstone.formula.printing import show

_FIRST = ("B", "S", "tokens", "batch_elements")  # named first in a product


def text_of(form: Polynomial) -> str:
    """A sum of products; `(...)` around it where a product goes on."""
    if not form.terms:
        return "0"
    first, *others = sorted(form.ordered, key=lambda term: term[1] < 0)  # what is subtracted stands last
    text = _term(*first)
    for powers, coefficient in others:
        sign, size = ("-", -coefficient) if coefficient < 0 else ("+", coefficient)
        text += f" {sign} {_term(powers, size)}"
    return text


def factor_text(form: Polynomial) -> str:
    """As text_of, in brackets where it is not a single product."""
    text = text_of(form)
    return f"({text})" if len(form.terms) > 1 or _is_fraction(form) else text


def _is_fraction(form: Polynomial) -> bool:
    return any(power < 0 for powers in form.terms for _, power in powers)


def _term(powers: Powers, coefficient: Value) -> str:
    ordered = sorted(powers, key=lambda pair: (pair[0] not in _FIRST, _place(pair[0]), str(pair[0])))
    over = [_power(unknown, power) for unknown, power in ordered if power > 0]
    under = [_power(unknown, -power) for unknown, power in ordered if power < 0]
    if coefficient != 1 or not over:
        over.insert(0, str(coefficient))
    text = " * ".join(over)
    return f"{text} / {under[0]}" if len(under) == 1 else text if not under else f"{text} / ({' * '.join(under)})"


def _place(unknown: Atom) -> int:
    return _FIRST.index(unknown) if isinstance(unknown, str) and unknown in _FIRST else len(_FIRST)


def _power(unknown: Atom, power: int) -> str:
    text = _atom(unknown)
    return text if power == 1 else f"{text}**{power}"


def _atom(unknown: Atom) -> str:
    if isinstance(unknown, str):
        return f"${{{unknown}}}"
    return _function(unknown) if isinstance(unknown, Applied) else f"({show(unknown)})"


def _function(function: Applied) -> str:
    arguments = function.arguments
    match function.name:
        case name if name == FLOOR_DIVIDE:
            return f"({factor_text(arguments[0])} // {factor_text(arguments[1])})"
        case name if name == MODULO:
            return f"({factor_text(arguments[0])} % {factor_text(arguments[1])})"
        case name if name == BIT_LENGTH:
            return f"ceil_log2({text_of(arguments[0] + ONE)})"
        case name if name == MIN:
            return f"min({', '.join(map(text_of, arguments))})"
        case name if name == CHOOSE:
            left, right, smaller, otherwise = map(text_of, arguments)
            return f"({smaller} if {left} < {right} else {otherwise})"
        case name:
            msg = f"the language has no word for {name}"
            raise AssertionError(msg)
