"""What runs in a backend's own environment must be readable by the oldest Python that such an environment may have."""

import ast
import sys
from pathlib import Path

import pytest

from tests.architecture.repository import PACKAGE, name_of, tree_of

OLDEST = (3, 10)
PARENT_SIDE = ("registry.py", "recorded.py")
NEWER_THAN_THAT = {
    "enum": {"StrEnum", "verify", "member", "nonmember"},
    "typing": {"Self", "Never", "assert_never", "assert_type", "LiteralString", "NotRequired", "Required", "override"},
    "datetime": {"UTC"},
    "itertools": {"batched"},
    "contextlib": {"chdir"},
}
FILES = sorted(
    path
    for folder in ("backends", "numerics")
    for path in (PACKAGE / folder).glob("*.py")
    if path.name not in PARENT_SIDE
)
TASKS = sorted(PACKAGE.rglob("child*.py"))


@pytest.mark.parametrize("path", [*FILES, *TASKS], ids=name_of)
def test_a_file_of_the_child_side_is_that_of_the_oldest_python(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST)

    imported = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ImportFrom)]
    newer = [
        name.name
        for node in imported
        for name in node.names
        if name.name in NEWER_THAN_THAT.get(node.module or "", set())
    ]
    modules = [name.name for node in ast.walk(tree_of(path)) if isinstance(node, ast.Import) for name in node.names]
    assert newer == []
    assert "tomllib" not in modules


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_of_the_child_side_imports_at_its_top_what_every_environment_has(path: Path) -> None:
    top = [node for node in tree_of(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
    roots = {
        name.partition(".")[0]
        for node in top
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    }

    assert roots <= {*sys.stdlib_module_names, "torch", "torchstone"}
