"""Whether code looks at the number of the layer it runs in.

Layers that are equal but for `layer_idx` may share a trace only if their code does not depend on it. Handing the number
to a cache, which keeps one entry a layer, is the one use that does no harm.
"""

import ast
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import CodeType
from typing import Any

from torch import nn

LAYER_NUMBERS = frozenset(
    {"layer_idx", "layer_id", "layer_index", "layer_number", "layer_num", "block_idx", "block_index"}
)


def layer_numbers(module: nn.Module) -> dict[str, int]:
    """The attributes of a module that number the layer it is in."""
    held = vars(module)
    if LAYER_NUMBERS.isdisjoint(held):
        return {}
    names = LAYER_NUMBERS & held.keys()
    own = vars(type(module))
    return {name: held[name] for name in names if type(held[name]) is int and not isinstance(own.get(name), property)}


class IndexReads:
    """Counts the reads of layer numbers that could make a difference."""

    def __init__(self, is_state: Callable[[Any], bool]) -> None:
        self.count = 0
        self._is_state = is_state

    @contextmanager
    def watching(self, modules: list[nn.Module]) -> Iterator[None]:
        """While open, reads of layer numbers of these modules are seen."""
        watched = {(type(module), name) for module in modules for name in layer_numbers(module)}
        with ExitStack() as undo:
            for cls, name in watched:
                if name not in vars(cls):
                    setattr(cls, name, _Watched(name, self._read))
                    undo.callback(delattr, cls, name)
            yield

    def _read(self) -> None:
        frame = sys._getframe(2)
        receiver = _receiver(frame.f_code, frame.f_lasti)
        if receiver is None or not self._is_state(frame.f_locals.get(receiver)):
            self.count += 1


class _Watched:
    """A descriptor that stands before the attribute of the same name in each instance."""

    def __init__(self, name: str, on_read: Callable[[], None]) -> None:
        self._name = name
        self._on_read = on_read

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        self._on_read()
        try:
            return vars(instance)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value

    def __delete__(self, instance: Any) -> None:
        del vars(instance)[self._name]


@cache
def _receiver(code: CodeType, instruction: int) -> str | None:
    """The variable whose method or item the attribute at this instruction goes straight into.

    `past.update(key, value, self.layer_idx)` -> past. None for every other use.
    """
    place = list(code.co_positions())[instruction // 2]
    for parent in ast.walk(_parse(code)):
        inside: list[ast.expr] = []
        if isinstance(parent, ast.Call):
            inside, target = [*parent.args, *(keyword.value for keyword in parent.keywords)], parent.func
        elif isinstance(parent, ast.Subscript):
            inside, target = [parent.slice], parent.value
        for node in inside:
            if (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == place:
                return _root_name(target)
    return None


def _parse(code: CodeType) -> ast.AST:
    """The function behind a code object, with the line numbers of its file; nothing where its text cannot be had."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    if not lines:
        return ast.Module(body=[], type_ignores=[])
    block = "".join(inspect.getblock(lines))
    head = "if True:\n" if block[:1].isspace() else ""  # keeps the columns of an indented function
    try:
        tree = ast.parse(head + block)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])
    return ast.increment_lineno(tree, code.co_firstlineno - 1 - bool(head))


def _root_name(node: ast.expr) -> str | None:
    if not isinstance(node, ast.Attribute):
        return None
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
