"""Python itself as the judge of a formula: its own grammar, and Fractions for every number."""

import ast
import math
from collections.abc import Mapping
from fractions import Fraction

from torchstone.formula.language.expression import Expression, Value
from torchstone.formula.language.print import show


class _Exact(ast.NodeTransformer):
    """Constants and truth values become Fractions, so that nothing is ever divided as a float."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return _call("F", node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return _call("truth", self.generic_visit(node))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        return _call("truth", self.generic_visit(node))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        inner = self.generic_visit(node)
        return _call("truth", inner) if isinstance(node.op, ast.Not) else inner


def _call(function: str, argument: ast.AST) -> ast.Call:
    assert isinstance(argument, ast.expr)
    return ast.Call(func=ast.Name(id=function, ctx=ast.Load()), args=[argument], keywords=[])


def python_value(tree: Expression, point: Mapping[str, Value]) -> Fraction:
    """What Python computes for the printed formula of a tree without calls."""
    code = ast.fix_missing_locations(_Exact().visit(ast.parse(show(tree, plain=True), mode="eval")))
    scope = {
        "__builtins__": {},
        "F": Fraction,
        "truth": lambda value: Fraction(bool(value)),
        "min": lambda *given: min(given),
        "max": lambda *given: max(given),
        "ceil": lambda value: Fraction(math.ceil(value)),
        "floor": lambda value: Fraction(math.floor(value)),
        "ceil_log2": lambda value: Fraction(next(n for n in range(9999) if 2**n >= value)),
        **{name: Fraction(value) for name, value in point.items()},
    }
    return Fraction(eval(compile(code, "formula", "eval"), scope))  # noqa: S307 - a printed tree of our own
