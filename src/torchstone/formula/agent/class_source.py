"""The source of a class, read from its file without importing it."""

import ast
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from torchstone.errors import FormulaError
from torchstone.record.formula import CodeLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSource:
    """Where a class stands, and its text."""

    file: Path
    location: CodeLocation
    text: str


def source_of_class(class_path: str) -> ClassSource:
    """Find a class by its path; the library is looked up, but nothing of it runs."""
    module, _, name = class_path.rpartition(".")
    root, file = _file_of(module, class_path)
    try:
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError) as error:
        msg = f"the source of {class_path} cannot be read: {error}"
        raise FormulaError(msg) from error
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            first, last = node.lineno, node.end_lineno or node.lineno
            lines = text.splitlines()[first - 1 : last]
            where = CodeLocation(file=file.relative_to(root).as_posix(), line_start=first, line_end=last)
            return ClassSource(file=file, location=where, text="\n".join(lines))
    msg = f"{file} has no class {name}"
    raise FormulaError(msg)


def _file_of(module: str, class_path: str) -> tuple[Path, Path]:
    """The folder that the library stands in, and the file of the module."""
    library, *inner = module.split(".") if module else [""]
    try:
        spec = find_spec(library) if library else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        msg = f"{class_path} cannot be found; give the whole path of an installed class, such as pkg.mod.Net"
        raise FormulaError(msg)
    start = Path(spec.origin)
    if not inner and start.name != "__init__.py":
        return start.parent, start
    base = start.parent.joinpath(*inner)
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return start.parent.parent, candidate
    msg = f"{class_path} cannot be found: there is no {base.with_suffix('.py')}"
    raise FormulaError(msg)
