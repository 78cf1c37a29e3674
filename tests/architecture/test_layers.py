import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.repository import PACKAGE, ROOT, load_tool, name_of, settings, source_files, tree_of

TOP = ("cli", "record")  # where stages meet, and what they meet over: no arrow of their own


_DOTTED = re.compile(r"\btorchstone\.(?P<folder>\w+)")
_TEMPLATES = (".txt", ".jinja", ".py.jinja")


def layers() -> dict[str, int]:
    """Each folder with the number of its layer, from the top."""
    (contract,) = (
        contract for contract in settings()["tool"]["importlinter"]["contracts"] if contract["type"] == "layers"
    )
    return {name.strip(): rank for rank, layer in enumerate(contract["layers"]) for name in layer.split("|")}


def layered() -> set[str]:
    return set(layers())


def strings_in(path: Path) -> Iterator[str]:
    """The text constants of a file, without docstrings: what a program may look up at run time."""
    tree = tree_of(path)
    said = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in said)
    return (constant.value for constant in constants if isinstance(constant.value, str))


def names_upwards(path: Path, text: str) -> list[str]:
    """The folders that a text names although a file in this place must not know them."""
    own, rank = path.relative_to(PACKAGE).parts[0].removesuffix(".py"), layers()
    named = {found["folder"] for found in _DOTTED.finditer(text)} & rank.keys()
    return sorted(name for name in named if name != own and rank[name] <= rank[own])


def test_the_import_contracts_are_kept() -> None:
    program = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout


def test_no_folder_names_one_beside_or_above_it_in_a_string() -> None:
    """An entry such as "torchstone.capture.capture_model:capture" is an import that the import contracts cannot see."""
    files = [path for path in source_files() if path.parent != PACKAGE]
    found = {name_of(path): [name for text in strings_in(path) for name in names_upwards(path, text)] for path in files}
    templates = [path for path in PACKAGE.rglob("templates/*") if path.suffix in _TEMPLATES]
    found |= {name_of(path): names_upwards(path, path.read_text(encoding="utf-8")) for path in templates}

    assert {name: names for name, names in found.items() if names} == {}


def test_every_folder_has_its_layer() -> None:
    parts = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}

    assert parts - {"__init__"} == layered()


def test_every_stage_says_its_arrow() -> None:
    tool = load_tool("folder_table")
    arrows = {folder.name: tool.arrow_of(folder) for folder in tool.folders()}

    assert [name for name, arrow in arrows.items() if not arrow.endswith(".")] == []
    assert [name for name, arrow in arrows.items() if "->" not in arrow and name not in TOP] == []


def test_every_inner_folder_says_what_it_holds() -> None:
    tool = load_tool("folder_table")
    packages = [path.parent for path in PACKAGE.rglob("__init__.py")]

    assert [folder.name for folder in packages if not tool.arrow_of(folder)] == []
