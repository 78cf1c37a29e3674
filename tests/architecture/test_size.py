import ast
import re
from collections import Counter
from pathlib import Path

from tests.architecture.repository import ROOT, Function, code_files, functions_in, name_of, source_files, tree_of

LONGEST_FILE = 600
LONGEST_FUNCTION = 60
BANNED = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
ALLOWED = ("common_options",)  # the options that all commands have in common
BLIND_HANDLERS = {  # may only become fewer
    "capture/op_log.py": 1,
    "capture/ops.py": 1,
    "capture/run.py": 1,
    "capture/trace_child.py": 1,
    "capture/ttnn_child.py": 1,
    "cli/main.py": 1,
    "workers/child.py": 1,
    "workers/zygote.py": 1,
}
_NOQA = re.compile(r"#\s*noqa(?P<rest>.*)")
_REASONED = re.compile(r": [A-Z]+[0-9]+(, [A-Z]+[0-9]+)* - \S.*")


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def words_of(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower()))


def names_defined_in(path: Path) -> list[str]:
    return [node.name for node in ast.walk(tree_of(path)) if isinstance(node, Function | ast.ClassDef)]


def length_of(function: Function) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def catches_everything(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in caught
    )


def lacks_its_reason(handler: ast.ExceptHandler, line: str) -> bool:
    """The linter requires a reason only where an error is swallowed; where it becomes another one, it is due, too."""
    last = handler.body[-1]
    if not isinstance(last, ast.Raise):
        return "noqa: BLE001 - " not in line
    return last.exc is not None and "  # " not in line


def test_a_file_can_be_read_in_one_go() -> None:
    lengths = {name_of(path): len(lines_of(path)) for path in code_files()}

    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_a_function_fits_on_a_screen() -> None:
    lengths = {
        f"{name_of(path)}:{function.lineno} {function.name}": length_of(function)
        for path in code_files()
        for function in functions_in(path)
    }

    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def test_names_of_files_and_folders_say_something() -> None:
    parts = {name_of(path): path.with_suffix("").relative_to(ROOT).parts for path in code_files()}

    assert [name for name, (*folders, stem) in parts.items() if BANNED & ({*folders} | words_of(stem))] == []


def test_names_of_functions_and_classes_say_something() -> None:
    defined = [(name_of(path), name) for path in source_files() for name in names_defined_in(path)]

    assert [(file, name) for file, name in defined if words_of(name) & BANNED and name not in ALLOWED] == []


def test_every_blind_except_carries_a_reason() -> None:
    handlers = [
        (path, node) for path in code_files() for node in ast.walk(tree_of(path)) if isinstance(node, ast.ExceptHandler)
    ]

    assert [
        f"{name_of(path)}:{handler.lineno}"
        for path, handler in handlers
        if catches_everything(handler) and lacks_its_reason(handler, lines_of(path)[handler.lineno - 1])
    ] == []


def test_what_the_linter_is_told_to_overlook_has_a_reason() -> None:
    found = [
        (f"{name_of(path)}:{number}", _NOQA.search(line))
        for path in source_files()
        for number, line in enumerate(lines_of(path), start=1)
    ]

    assert [where for where, noqa in found if noqa is not None and not _REASONED.fullmatch(noqa["rest"])] == []


def test_a_source_file_begins_with_what_it_is_for() -> None:
    assert [name_of(path) for path in source_files() if not ast.get_docstring(tree_of(path))] == []


def test_blind_handlers_only_become_fewer() -> None:
    """`foreign_code` is the border to code of others; these few stand at the border of a process, or raise again."""
    found = Counter(
        name_of(path).removeprefix("src/torchstone/")
        for path in source_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler) and catches_everything(node)
    )

    assert found == BLIND_HANDLERS
