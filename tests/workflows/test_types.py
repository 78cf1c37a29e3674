import ast
from pathlib import Path

import torchstone.workflows

FOLDER = Path(torchstone.workflows.__path__[0])


def test_no_workflow_uses_any() -> None:
    offenders = [
        f"{file.name}:{node.lineno}"
        for file in sorted(FOLDER.glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Name) and node.id == "Any"
    ]

    assert offenders == []


def test_every_public_function_and_record_says_what_it_promises() -> None:
    undocumented = [
        f"{file.name}:{node.lineno} {node.name}"
        for file in sorted(FOLDER.glob("*.py"))
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]

    assert undocumented == []
