"""Which expressions of a saved program are arithmetic on sizes, and nothing else.

torch evaluates the symbolic sizes of a .pt2 file with sympy's parser, and its guards with exec: both run any Python.
The grammar here is what sympy's printer writes for sizes, and no more.
"""

import ast
import re

_NAME = re.compile(r"[\w.]*")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?|[-+]?inf|nan")
_MAX_EXPRESSION_CHARACTERS = 20_000
_MAX_EXPONENT = 64
_SYMBOLIC_FUNCTIONS = frozenset({
    "Abs", "Add", "And", "CeilDiv", "CeilToInt", "CleanDiv", "Eq", "Equality", "Float", "FloatPow", "FloatTrueDiv",
    "FloorDiv", "FloorToInt", "Ge", "GreaterThan", "Gt", "Identity", "IntTrueDiv", "Integer",
    "IsNonOverlappingAndDenseIndicator", "LShift", "Le", "LessThan", "Lt", "Max", "Min", "Mod", "ModularIndexing",
    "Mul", "Ne", "Not", "Or", "Pow", "PowByNatural", "PythonMod", "RShift", "Rational", "RoundDecimal", "RoundToInt",
    "StrictGreaterThan", "StrictLessThan", "Symbol", "ToFloat", "TruncToFloat", "TruncToInt", "Unequality", "Where",
    "abs", "ceiling", "float", "floor", "int", "max", "min", "round", "sqrt",
})  # fmt: skip
_ATTRIBUTES = frozenset(
    {"ceil", "floor", "shape", "size", "sqrt", "storage_offset", "stride", "trunc"}
)  # of tensors and math
_ARITHMETIC = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Tuple, ast.Load,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.USub, ast.UAdd, ast.Not, ast.And, ast.Or,
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip


def is_arithmetic(text: str, *, with_tensors: bool) -> bool:
    """Whether an expression only computes with symbols; `with_tensors` also allows sizes such as L['x'].size()[0]."""
    if len(text) > _MAX_EXPRESSION_CHARACTERS:
        return False
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    nodes = list(ast.walk(tree))
    strings = {id(one) for node in nodes for one in _allowed_strings(node, with_tensors=with_tensors)}
    return all(_is_allowed(node, strings, with_tensors=with_tensors) for node in nodes)


def _allowed_strings(node: ast.AST, *, with_tensors: bool) -> list[ast.expr]:
    """The strings that may stand in a node: a symbol's name, the digits of a float, the name of an input."""
    match node:
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name)) as one]) if name.isidentifier():
            return [one]
        case ast.Call(func=ast.Name(id="Float"), args=[ast.Constant(value=str(digits)) as one]):
            return [one] if _NUMBER.fullmatch(digits) else []
        case ast.Subscript(slice=ast.Constant(value=str(name)) as one) if with_tensors and _NAME.fullmatch(name):
            return [one]
        case _:
            return []


def _is_allowed(node: ast.AST, strings: set[int], *, with_tensors: bool) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="Pow"), args=[_, exponent]) | ast.BinOp(op=ast.Pow(), right=exponent):
            return _is_small(exponent)  # a tower of powers would take all time and memory
        case ast.Call(func=ast.Name(id=name)) if name != "Pow":
            return name in _SYMBOLIC_FUNCTIONS
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Attribute(attr=name):
            return with_tensors and name in _ATTRIBUTES
        case ast.Subscript():
            return with_tensors
        case ast.Name(id=name):
            return not name.startswith("_")
        case ast.keyword(arg=str(name), value=ast.Constant()):
            return name.isidentifier()
        case ast.Constant(value=str()):
            return id(node) in strings
        case ast.Constant(value=value):
            return value is None or isinstance(value, (bool, int, float))
        case _:
            return isinstance(node, _ARITHMETIC)


def _is_small(exponent: ast.expr) -> bool:
    match exponent:
        case ast.Call(func=ast.Name(id="Integer" | "Rational"), args=args):
            return all(_is_small(one) for one in args)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_small(operand)
        case ast.Constant(value=int(value)):
            return abs(value) <= _MAX_EXPONENT
        case _:
            return False
