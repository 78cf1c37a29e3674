"""The repository as the architecture tests see it: its files, and the parsed sources."""

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "torchstone"
TESTS = ROOT / "tests"
CODE_FOLDERS = ("src", "tests", "tools", "examples", "benchmarks")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def source_files() -> list[Path]:
    """The files of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def code_files() -> list[Path]:
    """Every Python file that people write."""
    return sorted(path for folder in CODE_FOLDERS for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    """A file as people name it."""
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    """The dotted name of a file of the package."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def tree_of(path: Path) -> ast.Module:
    """A parsed source file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def functions_in(path: Path) -> Iterator[Function]:
    """Every function of a file, methods and inner ones too."""
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, Function))


@cache
def settings() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def tracked_files() -> tuple[Path, ...]:
    """The files that git knows or would add, as they are on disk."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = (ROOT / name for name in listed.split("\0") if name)
    return tuple(path for path in found if path.is_file())


def load_tool(name: str) -> Any:
    """A script of tools/ as a module."""
    spec = spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool
