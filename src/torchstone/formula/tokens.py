"""The words of a template, each with its place."""

import re
from dataclasses import dataclass
from enum import Enum, auto
from keyword import iskeyword

from torchstone.errors import FormulaError
from torchstone.formula.expression import FunctionName

MAX_CHARACTERS = 100_000
MAX_DIGITS = 1_000  # of one number

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
RESERVED = WORDS | frozenset(FunctionName)


class Kind(Enum):
    """What a token is."""

    NUMBER = auto()
    PARAMETER = auto()
    MODULE = auto()
    FUNCTION = auto()
    SYMBOL = auto()  # operators, brackets, words
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
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
    return Kind.FUNCTION if name in frozenset(FunctionName) else Kind.PARAMETER
