"""The source of a class and of its configuration, read from their files without importing them."""

import ast
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from torchstone.errors import FormulaError
from torchstone.record.formula import CodeLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSource:
    """Where a class stands, its text, and that of the configuration it is built from."""

    file: Path
    location: CodeLocation
    text: str
    config: str = ""  # "" where the class takes none, or it cannot be found


@dataclass(frozen=True, slots=True)
class _Module:
    """A parsed file, and the folder that its library stands in."""

    root: Path
    file: Path
    text: str
    tree: ast.Module

    def find(self, name: str) -> ast.ClassDef | None:
        """A class anywhere in the file."""
        found = (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef) and node.name == name)
        return next(found, None)

    def lines_of(self, node: ast.ClassDef) -> str:
        """The text of a class."""
        return "\n".join(self.text.splitlines()[node.lineno - 1 : node.end_lineno])


def source_of_class(class_path: str) -> ClassSource:
    """Find a class by its path; the library is looked up, but nothing of it runs."""
    name = class_path.rpartition(".")[2]
    module = _module_of(class_path)
    node = module.find(name)
    if node is None:
        msg = f"{module.file} has no class {name}"
        raise FormulaError(msg)
    where = CodeLocation(
        file=module.file.relative_to(module.root).as_posix(),
        line_start=node.lineno,
        line_end=node.end_lineno or node.lineno,
    )
    return ClassSource(
        file=module.file, location=where, text=module.lines_of(node), config=_config_source(module, node)
    )


def _config_source(module: _Module, node: ast.ClassDef) -> str:
    """The class that the constructor's argument `config` is annotated with."""
    name = _config_name(node)
    if name is None:
        return ""
    here = module.find(name)
    if here is not None:
        return module.lines_of(here)
    for statement in ast.walk(module.tree):
        if isinstance(statement, ast.ImportFrom) and any(alias.name == name for alias in statement.names):
            return _imported_class(module, statement, name)
    return ""


def _config_name(node: ast.ClassDef) -> str | None:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            for argument in item.args.args:
                if argument.arg == "config" and isinstance(argument.annotation, ast.Name):
                    return argument.annotation.id
    return None


def _imported_class(module: _Module, statement: ast.ImportFrom, name: str) -> str:
    package = module.file.relative_to(module.root).parent.parts
    base = package[: len(package) - statement.level + 1] if statement.level else ()
    path = ".".join((*base, *(statement.module or "").split("."), name))
    try:
        found = _module_of(path.replace("..", "."))
    except FormulaError:
        return ""
    node = found.find(name)
    return "" if node is None else found.lines_of(node)


def _module_of(class_path: str) -> _Module:
    root, file = _file_of(class_path)
    try:
        text = file.read_text(encoding="utf-8")
        return _Module(root, file, text, ast.parse(text))
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError) as error:
        msg = f"the source of {class_path} cannot be read: {error}"
        raise FormulaError(msg) from error


def _file_of(class_path: str) -> tuple[Path, Path]:
    """The folder that the library stands in, and the file of the module."""
    library, *inner = class_path.split(".")[:-1] or [""]
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
