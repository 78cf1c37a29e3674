import ast
import re
from pathlib import Path

import pytest

from tests.architecture.repository import Function, code_files, functions_in, name_of, source_files, tree_of

LONGEST_FILE = 600
LONGEST_FUNCTION = 60
BANNED = ("utils", "util", "helpers", "helper", "manager", "common", "misc")
ALLOWED = ("common_options",)  # the options that all commands have in common
_NOQA = re.compile(r"#\s*noqa(?P<rest>.*)")
_REASONED = re.compile(r": [A-Z]+[0-9]+(, [A-Z]+[0-9]+)* - \S.*")

pytestmark = pytest.mark.parametrize("path", code_files(), ids=name_of)


def catches_everything(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in caught
    )


def blind_handlers(path: Path) -> list[ast.ExceptHandler]:
    """What catches whatever comes and does not let go of it as it is: it is swallowed, or becomes another error."""
    handlers = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ExceptHandler)]
    ends = [(handler, handler.body[-1]) for handler in handlers if catches_everything(handler)]
    return [handler for handler, last in ends if not (isinstance(last, ast.Raise) and last.exc is None)]


def too_long(function: Function) -> bool:
    return (function.end_lineno or 0) - function.lineno + 1 > LONGEST_FUNCTION


def test_a_file_can_be_read_in_one_go(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


def test_a_function_fits_on_a_screen(path: Path) -> None:
    assert [function.name for function in functions_in(path) if too_long(function)] == []


def test_names_say_something(path: Path) -> None:
    nodes = ast.walk(tree_of(path)) if path in source_files() else ()
    defined = (node.name for node in nodes if isinstance(node, Function | ast.ClassDef))
    words = {name: re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower()) for name in (path.stem, *defined)}
    folders = [folder for folder in path.parent.parts if folder in BANNED]

    assert folders == []
    assert [name for name, parts in words.items() if set(parts) & set(BANNED) and name not in ALLOWED] == []


def test_every_blind_except_carries_a_reason(path: Path) -> None:
    """The linter asks for one only where an error is swallowed; where it becomes another one, a word is due, too."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [(lines[handler.lineno - 1], handler.body[-1]) for handler in blind_handlers(path)]

    assert [line for line, last in found if not isinstance(last, ast.Raise) and "noqa: BLE001 - " not in line] == []
    assert [line for line, last in found if isinstance(last, ast.Raise) and "  # " not in line] == []


def test_what_the_linter_is_told_to_overlook_has_a_reason(path: Path) -> None:
    if path not in source_files():
        return
    found = ((number, _NOQA.search(line)) for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1))

    assert [number for number, noqa in found if noqa is not None and not _REASONED.fullmatch(noqa["rest"])] == []


def test_a_source_file_says_what_it_is_for(path: Path) -> None:
    if path not in source_files():
        return
    assert ast.get_docstring(tree_of(path)), "a file begins with a docstring"
