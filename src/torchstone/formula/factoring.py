"""Formulas written as products, by sympy; trees go over and come back node by node, never as text."""

from fractions import Fraction
from typing import TYPE_CHECKING

from torchstone.errors import FormulaError, MissingExtraError
from torchstone.formula.expression import Binary, Expression, Negate, Number, Operator, Product, Sum, Value
from torchstone.formula.polynomial import Polynomial, expand, tree_of
from torchstone.formula.printing import show

if TYPE_CHECKING:
    import sympy


def factored(tree: Expression) -> Expression:
    """The formula as a product of factors that cannot be split further."""
    try:
        import sympy
    except ImportError as error:
        raise MissingExtraError(needed_for="writing a formula as a product", extra="formula") from error
    polynomial = expand(tree)
    atoms = _atoms(polynomial)
    symbols = {atom: sympy.Symbol(f"x{number}") for number, atom in enumerate(atoms)}
    found = sympy.factor(to_sympy(polynomial, symbols))
    return from_sympy(found, {symbol: atom for atom, symbol in symbols.items()})


def _atoms(polynomial: Polynomial) -> list[Expression]:
    """Parameters and what is kept whole, by name."""
    return sorted({tree_of(atom) for monomial in polynomial.terms for atom, _ in monomial}, key=show)


def to_sympy(polynomial: Polynomial, symbols: dict[Expression, "sympy.Symbol"]) -> "sympy.Expr":
    """A polynomial over symbols that stand for its parameters."""
    import sympy

    terms = []
    for monomial, factor in polynomial.terms.items():
        powers = [symbols[tree_of(atom)] ** exponent for atom, exponent in monomial]
        terms.append(sympy.Mul(sympy.Rational(factor.numerator, factor.denominator), *powers))
    return sympy.Add(*terms)


def from_sympy(expression: "sympy.Basic", atoms: dict["sympy.Symbol", Expression]) -> Expression:
    """What sympy made of it, as a tree."""
    import sympy

    if isinstance(expression, sympy.Symbol):
        return atoms[expression]
    if isinstance(expression, sympy.Rational):
        return Number(_exact(expression))
    operands = [from_sympy(argument, atoms) for argument in expression.args]
    if isinstance(expression, sympy.Add):
        return expand(Sum(tuple(operands))).tree  # in our own order
    if isinstance(expression, sympy.Mul):
        return _product(sorted(operands, key=_place))
    if isinstance(expression, sympy.Pow):
        return Binary(Operator.POWER, operands[0], operands[1])
    msg = f"sympy gave a {type(expression).__name__}, which the language does not have"
    raise FormulaError(msg)


def _place(factor: Expression) -> tuple[bool, bool, str]:
    """Numbers first, then names, then sums."""
    base = factor.left if isinstance(factor, Binary) else factor
    return not isinstance(factor, Number), isinstance(base, Sum), show(factor)


def _exact(number: "sympy.Rational") -> Value:
    return Fraction(int(number.p), int(number.q))


def _product(factors: list[Expression]) -> Expression:
    """Factors with negative exponents become a divisor."""
    above: list[Expression] = []
    below: list[Expression] = []
    for factor in factors:
        inverse = _inverse(factor)
        (above if inverse is None else below).append(factor if inverse is None else inverse)
    head = _joined(above)
    return Binary(Operator.DIVIDE, head, _joined(below)) if below else head


def _inverse(factor: Expression) -> Expression | None:
    match factor:
        case Binary(operator=Operator.POWER, left=base, right=Number(value=exponent)) if exponent < 0:
            return base if exponent == -1 else Binary(Operator.POWER, base, Number(-exponent))
        case _:
            return None


def _joined(factors: list[Expression]) -> Expression:
    if not factors:
        return Number(1)
    first, *others = factors
    if first == Number(-1) and others:
        return Negate(_joined(others)) if len(others) == 1 else Product((Negate(others[0]), *others[1:]))
    return Product(tuple(factors)) if others else first
