"""Formulas inlined, simplified and factored, and whether the named parts of a formula add up to it."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from torchstone.errors import FormulaError, MissingExtraError
from torchstone.formula.algebra.polynomial import Polynomial, expand, same_value, tree_of
from torchstone.formula.database.files import Formulas, key_of, short_name
from torchstone.formula.database.templates import (
    bind,
    called_entry,
    default_of,
    domain_of,
    name_of,
    parsed,
    require_sound,
    template_of,
)
from torchstone.formula.language.expression import (
    Binary,
    Call,
    Choose,
    Compare,
    Connective,
    Expression,
    Logical,
    Negate,
    Number,
    Operator,
    Parameter,
    Product,
    Relation,
    Sum,
    Value,
    depth_of,
    free_parameters,
    rewrite,
    substitute,
    walk,
)
from torchstone.formula.language.parse import MAX_DEPTH
from torchstone.formula.language.print import show
from torchstone.record.formula import FormulaEntry, Quantity

if TYPE_CHECKING:
    import sympy

# --- Shortening by the conditions of the domain ---


def within_domain(tree: Expression, conditions: Sequence[Expression]) -> Expression:
    """The formula where the conditions hold: what divides without rest needs no rounding."""
    exact = {(left, right) for condition in conditions for left, right in _divisibilities(condition)}

    def change(node: Expression) -> Expression:
        if isinstance(node, Binary) and node.operator is Operator.FLOOR_DIVIDE and (node.left, node.right) in exact:
            return Binary(Operator.DIVIDE, node.left, node.right)
        return node

    return rewrite(tree, change)


def _divisibilities(condition: Expression) -> list[tuple[Expression, Expression]]:
    """The pairs that a condition says divide without rest."""
    if isinstance(condition, Logical) and condition.connective is Connective.AND:
        return [pair for one in condition.conditions for pair in _divisibilities(one)]
    match condition:
        case Compare(relation=Relation.EQUAL, left=Binary(operator=Operator.MODULO) as rest, right=Number(value=0)):
            return [(rest.left, rest.right)]
        case _:
            return []


# --- Factoring by sympy; trees are converted node by node, never as text, which sympy would evaluate ---


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
    """A sympy expression as a tree of the formula language."""
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
    msg = f"sympy returned a {type(expression).__name__}, which the formula language does not have"
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


# --- Inlining nested calls until only parameters are left ---


MAX_NODES = 20_000
_OWN_OPS, _OWN_TENSORS = "own ops", "own tensors"  # of a class itself, not of the modules inside it


def inlined(
    formulas: Formulas, entry: FormulaEntry, quantity: Quantity, given: Mapping[str, Expression | Value] | None = None
) -> Expression:
    """An entry's formula without calls; parameters that are given are replaced, the others stay as they are."""
    require_sound(formulas, entry, quantity)
    trees = {name: _tree(value) for name, value in (given or {}).items()}
    unknown = [name for name in trees if name not in entry.all_parameters]
    if unknown:
        msg = f"{name_of(entry)} has no parameter {', '.join(unknown)}; it has {', '.join(entry.all_parameters)}"
        raise FormulaError(msg)
    own = {name: Parameter(name) for name in entry.parameters(quantity)}
    return _Inliner(formulas, quantity).body(entry, {**own, **trees})


def inlined_term(formulas: Formulas, entry: FormulaEntry, quantity: Quantity, term: Expression) -> Expression:
    """A piece of an entry's template without calls."""
    require_sound(formulas, entry, quantity)
    own = {name: Parameter(name) for name in entry.all_parameters}
    return _Inliner(formulas, quantity).piece(entry, term, own)


def named_parts(
    formulas: Formulas, entry: FormulaEntry, quantity: Quantity, given: Mapping[str, Expression]
) -> dict[str, Expression]:
    """The parts of a whole formula without calls, by the path of attributes: model.layers.mlp.gate_proj.

    A part that is a call of a class with parts of its own is replaced by these. Classes of torch.nn are not divided.
    Bytes have no breakdown: their parts are named by class, and the ops of a class itself are one part.
    """
    require_sound(formulas, entry, quantity)
    own: dict[str, Expression] = {name: given.get(name, Parameter(name)) for name in entry.all_parameters}
    found: dict[str, list[Expression]] = {}
    for label, part in _Inliner(formulas, quantity).parts(entry, own, "", Number(1)):
        found.setdefault(label, []).append(part)
    return {label: parts[0] if len(parts) == 1 else Sum(tuple(parts)) for label, parts in found.items()}


def _terms_of(
    entry: FormulaEntry, quantity: Quantity, arguments: Mapping[str, Expression]
) -> list[tuple[str, Expression]]:
    """The parts of one formula as it is written, with their names; one part where it is not a sum."""
    breakdown = entry.flop_analysis.breakdown if quantity is Quantity.FLOPS else {}
    if breakdown:
        return [(label, parsed(entry, f"breakdown of {label}", text)) for label, text in breakdown.items()]
    tree = template_of(entry, quantity)
    while isinstance(tree, Choose):  # one side alone, where the arguments decide it
        chosen = expand(substitute(tree.condition, arguments)).number
        if chosen is None:
            break
        tree = tree.chosen if chosen else tree.otherwise
    listed: list[tuple[str, Expression]] = []
    own = _OWN_TENSORS if quantity is Quantity.WEIGHTS else _OWN_OPS
    for term in _flat(tree):
        call, _ = _counted_call(term)
        listed.append((own if call is None else short_name(call.module), term))
    return listed


def _flat(tree: Expression) -> Iterator[Expression]:
    if isinstance(tree, Sum):
        for term in tree.terms:
            yield from _flat(term)
    else:
        yield tree


def _counted_call(term: Expression) -> tuple[Call | None, Expression]:
    """The only call of a term and what it is multiplied by; None where the term is anything else."""
    factors = term.factors if isinstance(term, Product) else (term,)
    calls = [one for one in factors if isinstance(one, Call)]
    others = tuple(one for one in factors if not isinstance(one, Call))
    if len(calls) != 1 or any(isinstance(node, Call) for one in others for node in walk(one)):
        return None, term
    return calls[0], _joined(list(others))


def with_defaults(entry: FormulaEntry, quantity: Quantity, given: Mapping[str, Expression]) -> dict[str, Expression]:
    """The given arguments, and for the other parameters their defaults in terms of the given ones."""
    settled = dict(given)
    waiting = [name for name in entry.parameters(quantity) if name not in settled]
    while waiting:
        ready = [name for name in waiting if _default_needs(entry, name) <= settled.keys()]
        if not ready:
            msg = f"{name_of(entry)} needs values for {', '.join(waiting)}"
            raise FormulaError(msg)
        for name in ready:
            default = default_of(entry, name)
            settled[name] = Parameter(name) if default is None else substitute(default, settled)
        waiting = [name for name in waiting if name not in settled]
    return {name: settled[name] for name in entry.parameters(quantity)}


def _default_needs(entry: FormulaEntry, name: str) -> set[str]:
    default = default_of(entry, name)
    return {name} if default is None else set(free_parameters(default))


def _tree(value: Expression | Value) -> Expression:
    return Number(value) if isinstance(value, Value) else value


class _Inliner:
    """One formula; equal calls are replaced by the same tree."""

    def __init__(self, formulas: Formulas, quantity: Quantity) -> None:
        self._formulas = formulas
        self._quantity = quantity
        self._known: dict[tuple[str, tuple[Expression, ...]], Expression] = {}

    def body(self, entry: FormulaEntry, arguments: Mapping[str, Expression]) -> Expression:
        """An entry's template over these arguments."""
        key = (key_of(entry.module_path, entry.variant), tuple(arguments.values()))
        if key not in self._known:
            self._known[key] = self.piece(entry, template_of(entry, self._quantity), arguments)
        return self._known[key]

    def piece(self, entry: FormulaEntry, tree: Expression, arguments: Mapping[str, Expression]) -> Expression:
        """A piece of an entry's template over these arguments."""

        def change(node: Expression) -> Expression:
            if isinstance(node, Parameter):
                return arguments[node.name]
            if not isinstance(node, Call):
                return node
            called = called_entry(self._formulas, entry, self._quantity, node.module)
            bound = bind(called, self._quantity, node.arguments, dict(node.named))
            return self.body(called, with_defaults(called, self._quantity, bound))

        return _limited(entry, rewrite(tree, change))

    def parts(
        self, entry: FormulaEntry, arguments: Mapping[str, Expression], path: str, times: Expression
    ) -> Iterator[tuple[str, Expression]]:
        """The parts of an entry's template over these arguments, each as often as its class is called."""
        for label, term in _terms_of(entry, self._quantity, arguments):
            call, count = _counted_call(term)
            if call is not None:
                called = called_entry(self._formulas, entry, self._quantity, call.module)
                given = [self.piece(entry, one, arguments) for one in call.arguments]
                named = {name: self.piece(entry, one, arguments) for name, one in call.named}
                inner = with_defaults(called, self._quantity, bind(called, self._quantity, given, named))
                if not called.module_path.startswith("torch.nn.") and len(_terms_of(called, self._quantity, inner)) > 1:
                    often = Product((times, self.piece(entry, count, arguments)))
                    yield from self.parts(called, inner, f"{path}{label}.", often)
                    continue
            yield f"{path}{label}", Product((times, self.piece(entry, term, arguments)))


def _limited(entry: FormulaEntry, tree: Expression) -> Expression:
    for count, _ in enumerate(walk(tree), start=1):
        if count > MAX_NODES:
            msg = f"written out, {name_of(entry)} has more than {MAX_NODES} parts"
            raise FormulaError(msg)
    if depth_of(tree) > MAX_DEPTH:
        msg = f"written out, {name_of(entry)} is nested more than {MAX_DEPTH} deep"
        raise FormulaError(msg)
    return tree


# --- Checking that a breakdown adds up to its formula ---


def breakdown_problems(formulas: Formulas) -> Iterator[str]:
    """One sentence for each entry whose parts are not shown to add up to its formula."""
    for entry in formulas.entries.values():
        if entry.flop_analysis.breakdown and not adds_up(formulas, entry):
            yield f"{name_of(entry)}: the parts of the breakdown do not add up to the formula"


def adds_up(formulas: Formulas, entry: FormulaEntry) -> bool:
    """Whether formula and breakdown are equal: as they are written, or written out within the domain."""
    try:
        whole, parts = template_of(entry, Quantity.FLOPS), _sum_of_parts(entry)
        if same_value(whole, parts):
            return True
        conditions = list(domain_of(entry))
        written_out = within_domain(inlined(formulas, entry, Quantity.FLOPS), conditions)
        parts = within_domain(inlined_term(formulas, entry, Quantity.FLOPS, parts), conditions)
        return same_value(written_out, parts)
    except FormulaError:
        return False


def _sum_of_parts(entry: FormulaEntry) -> Expression:
    texts = entry.flop_analysis.breakdown.items()
    return Sum((Number(0), *(parsed(entry, f"breakdown of {part}", text) for part, text in texts)))
