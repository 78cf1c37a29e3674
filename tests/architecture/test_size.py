import ast
import re
from pathlib import Path

import pytest

from tests.architecture.repository import Function, code_files, functions_in, name_of, source_files, tree_of

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
BANNED = ("utils", "util", "helpers", "helper", "manager", "common", "misc")
ALLOWED = ("common_options",)  # the options that all commands have in common
_NOQA = re.compile(r"#\s*noqa(?P<rest>.*)")
_REASONED = re.compile(r": [A-Z]+[0-9]+(, [A-Z]+[0-9]+)* - \S.*")

pytestmark = pytest.mark.parametrize("path", code_files(), ids=name_of)


def is_blind(handler: ast.ExceptHandler) -> bool:
    """Whether it catches whatever comes and does not pass it on."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    everything = any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in caught
    )
    return everything and not isinstance(handler.body[-1], ast.Raise)


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


def test_no_blind_except_without_a_reason(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    blind = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ExceptHandler) and is_blind(node)]

    assert [handler.lineno for handler in blind if "noqa: BLE001 - " not in lines[handler.lineno - 1]] == []


def test_what_the_linter_is_told_to_overlook_has_a_reason(path: Path) -> None:
    if path not in source_files():
        return
    found = ((number, _NOQA.search(line)) for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1))

    assert [number for number, noqa in found if noqa is not None and not _REASONED.fullmatch(noqa["rest"])] == []


def test_a_source_file_says_what_it_is_for(path: Path) -> None:
    if path not in source_files():
        return
    assert ast.get_docstring(tree_of(path)), "a file begins with a docstring"
