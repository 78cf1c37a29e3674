import subprocess
import sys

from tests.architecture.repository import PACKAGE, ROOT, load_tool, settings

TOP = ("cli", "record")  # where stages meet, and what they meet over: no arrow of their own


def layered() -> set[str]:
    (contract,) = (
        contract for contract in settings()["tool"]["importlinter"]["contracts"] if contract["type"] == "layers"
    )
    return {name.strip() for layer in contract["layers"] for name in layer.split("|")}


def test_the_import_contracts_are_kept() -> None:
    program = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout


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
