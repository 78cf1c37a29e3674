"""Text -> Expression, for the language of templates; nothing of it is ever run as code."""

import re
from enum import Enum, auto
from fractions import Fraction
from keyword import iskeyword
from typing import NamedTuple

from torchstone.errors import FormulaError
from torchstone.formula.language.expression import (
    Binary,
    Call,
    Choose,
    Compare,
    Connective,
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
    depth_of,
)

MAX_CHARACTERS = 100_000
MAX_DIGITS = 1_000  # of one number
MAX_DEPTH = 100

_PARAMETER_NAME = r"[A-Za-z][A-Za-z0-9_]*"
_TOKEN = re.compile(
    rf"""(?P<space>\s+)
    | (?P<number>[0-9]+(?:\.[0-9]+)?)
    | \$\{{\s*(?P<parameter>{_PARAMETER_NAME})\s*\}}
    | \{{\s*(?P<module>[A-Za-z_][\w.<>-]*(?:\[[\w.+=, -]+\])?)\s*\}}
    | (?P<name>[A-Za-z_]\w*)
    | (?P<symbol>\*\*|//|<=|>=|==|!=|[-+*/%<>(),=])
    """,
    re.VERBOSE | re.ASCII,
)
WORDS = frozenset({"if", "else", "and", "or", "not"})
_FUNCTIONS = frozenset(FunctionName)
_RELATIONS = frozenset(Relation)
RESERVED = WORDS | _FUNCTIONS

CHOOSE, OR, AND, NOT, COMPARE, SUM, PRODUCT, SIGN, POWER, ATOM = range(10)  # from loose to tight
_ONE_ARGUMENT = (FunctionName.CEIL, FunctionName.FLOOR, FunctionName.CEIL_LOG2, FunctionName.LOG2)
_CONNECTIVES = {Connective.OR: OR, Connective.AND: AND}
_DIVISIONS = frozenset({Operator.DIVIDE, Operator.FLOOR_DIVIDE, Operator.MODULO})


class Kind(Enum):
    """The kind of a token."""

    NUMBER = auto()
    PARAMETER = auto()
    MODULE = auto()
    FUNCTION = auto()
    SYMBOL = auto()  # operators, brackets, words
    END = auto()


class Token(NamedTuple):
    """One word of a template."""

    kind: Kind
    text: str
    position: int

    @property
    def shown(self) -> str:
        """As it is named in messages."""
        return "the end" if self.kind is Kind.END else repr(self.text)


class TemplateError(FormulaError):
    """A template that is not in the language; the message names the character, counted from 1."""

    def __init__(self, reason: str, *, position: int) -> None:
        super().__init__(f"{reason} at character {position + 1}")
        self.reason = reason
        self.position = position


def is_parameter_name(name: str) -> bool:
    """Whether a parameter can have this name; it must also do as an argument of a Python function."""
    return re.fullmatch(_PARAMETER_NAME, name, re.ASCII) is not None and name not in RESERVED and not iskeyword(name)


def read_tokens(text: str) -> list[Token]:
    """The words of a template; the last token is the end."""
    if len(text) > MAX_CHARACTERS:
        msg = f"a template of {len(text)} characters is too long (at most {MAX_CHARACTERS})"
        raise TemplateError(msg, position=MAX_CHARACTERS)
    tokens, position = [], 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            msg = f"cannot read {text[position : position + 12]!r}"
            raise TemplateError(msg, position=position)
        if found.lastgroup != "space":
            tokens.append(_token(found))
        position = found.end()
    return [*tokens, Token(Kind.END, "", len(text))]


def _token(found: re.Match[str]) -> Token:
    group, position = found.lastgroup or "", found.start()
    text = found[group]
    match group:
        case "number":
            if len(text) > MAX_DIGITS:
                msg = f"a number of {len(text)} digits is too long (at most {MAX_DIGITS})"
                raise TemplateError(msg, position=position)
            return Token(Kind.NUMBER, text, position)
        case "parameter":
            return Token(Kind.PARAMETER, text, position)
        case "module":
            return Token(Kind.MODULE, text, position)
        case "name":
            return Token(_kind_of_name(text), text, position)
        case _:
            return Token(Kind.SYMBOL, text, position)


def _kind_of_name(name: str) -> Kind:
    if name in WORDS:
        return Kind.SYMBOL
    return Kind.FUNCTION if name in _FUNCTIONS else Kind.PARAMETER


def parse(text: str) -> Expression:
    """The tree of a template; a text that is not in the language is refused with its position."""
    reader = _Reader(read_tokens(text))
    tree = reader.expression(CHOOSE)
    rest = reader.token
    if rest.kind is not Kind.END:
        msg = f"expected an operator, found {rest.shown}"
        raise TemplateError(msg, position=rest.position)
    if depth_of(tree) > MAX_DEPTH:
        raise TemplateError(_TOO_DEEP, position=0)
    return tree


_TOO_DEEP = f"the template is nested more than {MAX_DEPTH} deep"


class _Reader:
    """Precedence climbing over the tokens; one call for each bracket, so that depth is bounded."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._at]

    def _ahead(self, steps: int) -> Token:
        return self._tokens[min(self._at + steps, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self.token
        self._at += 1
        return token

    def _is(self, symbol: str) -> bool:
        token = self._tokens[self._at]
        return token.kind is Kind.SYMBOL and token.text == symbol

    def _skip(self, symbol: str) -> bool:
        if not self._is(symbol):
            return False
        self._at += 1
        return True

    def _expect(self, symbol: str) -> None:
        if not self._skip(symbol):
            msg = f"expected {symbol!r}, found {self.token.shown}"
            raise TemplateError(msg, position=self.token.position)

    def expression(self, level: int) -> Expression:
        """An expression whose operators bind at least as tightly as the level."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TemplateError(_TOO_DEEP, position=self.token.position)
        left = self._operand(level)
        for _ in range(MAX_DEPTH):  # each adds a level: a / b / c
            longer = self._continued(left, level)
            if longer is None:
                self._depth -= 1
                return left
            left = longer
        raise TemplateError(_TOO_DEEP, position=self.token.position)

    def _continued(self, left: Expression, level: int) -> Expression | None:
        kind, symbol, _ = self._tokens[self._at]
        if kind is not Kind.SYMBOL:
            return None
        if symbol in ("+", "-") and level <= SUM:
            return self._sum(left)
        if symbol == "*" and level <= PRODUCT:
            return self._product(left)
        if symbol in _DIVISIONS and level <= PRODUCT:
            self._take()
            return Binary(Operator(symbol), left, self.expression(SIGN))
        if symbol in _RELATIONS and level <= COMPARE:
            return self._compare(left)
        if symbol in _CONNECTIVES and level <= _CONNECTIVES[Connective(symbol)]:
            return self._logical(left, Connective(symbol))
        if symbol == "if" and level <= CHOOSE:
            return self._choose(left)
        return None

    def _sum(self, first: Expression) -> Expression:
        terms = [first]
        while self._is("+") or self._is("-"):
            negative = self._take().text == "-"
            literal = self.token.kind is Kind.NUMBER
            term = self.expression(PRODUCT)
            if negative:
                term = Number(-term.value) if literal and isinstance(term, Number) else Negate(term)
            terms.append(term)
        return Sum(tuple(terms))

    def _product(self, first: Expression) -> Expression:
        factors = [first]
        while self._skip("*"):
            factors.append(self.expression(SIGN))
        return Product(tuple(factors))

    def _compare(self, left: Expression) -> Expression:
        relation = Relation(self._take().text)
        result = Compare(relation, left, self.expression(SUM))
        if self.token.kind is Kind.SYMBOL and self.token.text in _RELATIONS:
            msg = "comparisons cannot be chained; join two with 'and'"
            raise TemplateError(msg, position=self.token.position)
        return result

    def _logical(self, first: Expression, connective: Connective) -> Expression:
        conditions = [first]
        while self._skip(connective):
            conditions.append(self.expression(_CONNECTIVES[connective] + 1))
        return Logical(connective, tuple(conditions))

    def _choose(self, chosen: Expression) -> Expression:
        self._expect("if")
        condition = self.expression(OR)
        self._expect("else")
        return Choose(condition, chosen, self.expression(CHOOSE))

    def _operand(self, level: int) -> Expression:
        token = self.token
        if self._is("not"):
            if level > NOT:
                msg = "'not' needs brackets here"
                raise TemplateError(msg, position=token.position)
            self._take()
            return Not(self.expression(NOT))
        literal = self._literal(level)
        if literal is not None:
            return literal
        if self._skip("-"):
            return Negate(self.expression(SIGN))
        if self._skip("+"):
            return self.expression(SIGN)
        return self._power()

    def _literal(self, level: int) -> Number | None:
        """A number with its sign, or a fraction of two: 3, -3, 9/2; None where the tokens are something else."""
        sign = 1 if self._is("-") else 0
        if self._ahead(sign).kind is not Kind.NUMBER:
            return None
        if self._is_symbol(sign + 1, "**"):
            return None
        fraction = level <= PRODUCT and self._is_symbol(sign + 1, "/") and self._ahead(sign + 2).kind is Kind.NUMBER
        self._at += sign
        value = _number(self._take())
        if fraction and not self._is_symbol(2, "**"):
            self._take()
            divisor = self._take()
            if _number(divisor) == 0:
                msg = "division by zero"
                raise TemplateError(msg, position=divisor.position)
            value /= _number(divisor)
        return Number(-value if sign else value)

    def _is_symbol(self, steps: int, symbol: str) -> bool:
        token = self._ahead(steps)
        return token.kind is Kind.SYMBOL and token.text == symbol

    def _power(self) -> Expression:
        base = self._atom()
        if not self._skip("**"):
            return base
        return Binary(Operator.POWER, base, self.expression(SIGN))

    def _atom(self) -> Expression:
        token = self._take()
        match token.kind:
            case Kind.NUMBER:
                return Number(_number(token))
            case Kind.PARAMETER:
                return Parameter(token.text, position=token.position)
            case Kind.MODULE:
                return self._call(token)
            case Kind.FUNCTION:
                return self._function(token)
            case _ if token.kind is Kind.SYMBOL and token.text == "(":
                inner = self.expression(CHOOSE)
                self._expect(")")
                return inner
            case _:
                msg = f"expected a number, a parameter or a bracket, found {token.shown}"
                raise TemplateError(msg, position=token.position)

    def _function(self, token: Token) -> Expression:
        name = FunctionName(token.text)
        arguments, named = self._arguments()
        if named:
            msg = f"{name} takes no named arguments"
            raise TemplateError(msg, position=token.position)
        if len(arguments) != 1 if name in _ONE_ARGUMENT else not arguments:
            needed = "one argument" if name in _ONE_ARGUMENT else "an argument or more"
            msg = f"{name} takes {needed}, not {len(arguments)},"
            raise TemplateError(msg, position=token.position)
        return Function(name, arguments)

    def _call(self, token: Token) -> Expression:
        arguments, named = self._arguments()
        return Call(token.text, arguments, named, position=token.position)

    def _arguments(self) -> tuple[tuple[Expression, ...], tuple[tuple[str, Expression], ...]]:
        self._expect("(")
        arguments: list[Expression] = []
        named: dict[str, Expression] = {}
        while not self._is(")"):
            name = self._argument_name()
            if name is not None:
                if name.text in named:
                    msg = f"argument {name.text!r} is given twice"
                    raise TemplateError(msg, position=name.position)
                named[name.text] = self.expression(CHOOSE)
            elif named:
                msg = "a positional argument follows a named one"
                raise TemplateError(msg, position=self.token.position)
            else:
                arguments.append(self.expression(CHOOSE))
            if not self._skip(","):
                break
        self._expect(")")
        return tuple(arguments), tuple(named.items())

    def _argument_name(self) -> Token | None:
        if self.token.kind is not Kind.PARAMETER or not self._is_symbol(1, "="):
            return None
        name = self._take()
        self._take()
        return name


def _number(token: Token) -> Fraction:
    return Fraction(token.text)
