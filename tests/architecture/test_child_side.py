"""What runs in a backend's own environment must be readable by the oldest Python that such an environment may have."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.repository import PACKAGE, name_of, tree_of

OLDEST = (3, 10)
PARENT_SIDE = ("registry.py", "recorded.py", "recipes.py", "environment.py")
NEWER_THAN_THAT = {
    "enum": {"StrEnum", "verify", "member", "nonmember"},
    "typing": {"Self", "Never", "assert_never", "assert_type", "LiteralString", "NotRequired", "Required", "override"},
    "datetime": {"UTC"},
    "itertools": {"batched"},
    "contextlib": {"chdir"},
}
BACKENDS = sorted(
    path
    for folder in ("backends", "numerics")
    for path in (PACKAGE / folder).rglob("*.py")
    if path.name not in PARENT_SIDE
)
TASKS = sorted({*PACKAGE.rglob("child*.py"), *PACKAGE.rglob("child/*.py")})


def newer_names_in(path: Path) -> list[str]:
    imports = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ImportFrom)]
    names = [(node.module or "", name.name) for node in imports for name in node.names]
    return [name for module, name in names if name in NEWER_THAN_THAT.get(module, set())]


def modules_imported(nodes: Iterator[ast.AST]) -> set[str]:
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


def parses(path: Path) -> bool:
    try:
        ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST)
    except SyntaxError:
        return False
    return True


def test_there_is_a_child_side() -> None:
    assert len(BACKENDS) > 5
    assert len(TASKS) > 2


def test_the_child_side_has_the_syntax_of_the_oldest_python() -> None:
    assert [name_of(path) for path in [*BACKENDS, *TASKS] if not parses(path)] == []


def test_the_child_side_imports_no_name_that_the_oldest_python_lacks() -> None:
    newer = {name_of(path): newer_names_in(path) for path in [*BACKENDS, *TASKS]}

    assert {name: names for name, names in newer.items() if names} == {}


def test_the_child_side_imports_no_module_that_the_oldest_python_lacks() -> None:
    files = [*BACKENDS, *TASKS]

    assert [name_of(path) for path in files if "tomllib" in modules_imported(ast.walk(tree_of(path)))] == []


def test_a_backend_imports_at_its_top_what_every_environment_has() -> None:
    known = {*sys.stdlib_module_names, "torch", "torchstone"}
    imported = {name_of(path): modules_imported(iter(tree_of(path).body)) for path in BACKENDS}

    assert {
        name: unknown
        for name, modules in imported.items()
        if (unknown := {module for module in modules if module.partition(".")[0] not in known})
    } == {}
