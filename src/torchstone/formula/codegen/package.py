"""Formulas -> a Python package that computes them without torchstone, written as a whole or not at all."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from tempfile import mkdtemp

from torchstone.errors import FormulaError, InputError
from torchstone.formula.codegen.python_text import LINE, RETURN, PythonPrinter, Statements, literal
from torchstone.formula.database.files import Formulas, key_of, public_alias
from torchstone.formula.database.templates import (
    bind,
    called_entries,
    called_entry,
    default_of,
    domain_of,
    known_quantities,
    name_of,
    problems_of,
    template_of,
)
from torchstone.formula.language.expression import Call, Expression, free_parameters
from torchstone.formula.language.print import show
from torchstone.record.folder_lock import SHORT_WRITE_S, exclusive
from torchstone.record.formula import FormulaEntry, Quantity
from torchstone.temporary import remove_tree

# --- Folders, files and class names of a generated package ---


TAKEN = frozenset({"base", "exact", "registry"})  # files of the package itself
WITHOUT_LIBRARY = "generic"
_WORD_STARTS = (re.compile(r"([a-z0-9])([A-Z])"), re.compile(r"([A-Z]+)([A-Z][a-z])"))
_NO_NAME = re.compile(r"\W+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the class of an entry stands: torch/nn_linear.py, TorchLinear."""

    folder: str
    file: str  # without .py
    class_name: str

    @property
    def imported_as(self) -> str:
        """The name that other files use for this one; no parameter begins with an underscore."""
        return f"_{snake(self.class_name)}"


def places_of(entries: Iterable[FormulaEntry]) -> dict[str, Place]:
    """A place for each entry by its key; no two share a file or a class name."""
    places: dict[str, Place] = {}
    files: set[tuple[str, str]] = set()
    classes: set[tuple[str, str]] = set()
    for entry in sorted(entries, key=lambda one: key_of(one.module_path, one.variant)):
        library, *inner, name = _parts(entry)
        folder = _identifier(library) + ("_" if library in TAKEN else "")
        variant = _identifier(entry.variant) if entry.variant else ""
        file = _unused(_file(inner, name, variant), folder, files)
        class_name = _unused(_identifier(_camel(library) + _identifier(name) + _camel(variant)), "", classes)
        places[key_of(entry.module_path, entry.variant)] = Place(folder=folder, file=file, class_name=class_name)
    return places


def _parts(entry: FormulaEntry) -> list[str]:
    """Library, folders and class; a class of torch.nn by the path that people write."""
    parts = (public_alias(entry.module_path) or entry.module_path).split(".")
    return parts if len(parts) > 1 else [WITHOUT_LIBRARY, *parts]


def _file(inner: list[str], name: str, variant: str) -> str:
    return "_".join(part for part in (*map(_identifier, inner), snake(_identifier(name)), variant) if part)


def snake(name: str) -> str:
    """A class name as a file name: LlamaRMSNorm -> llama_rms_norm."""
    for start in _WORD_STARTS:
        name = start.sub(r"\1_\2", name)
    return name.lower()


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in _identifier(name).split("_")) if name else ""


def _identifier(text: str) -> str:
    name = _NO_NAME.sub("_", text).strip("_") or "unnamed"
    return f"_{name}" if name[0].isdigit() or iskeyword(name) else name


def _unused(name: str, folder: str, used: set[tuple[str, str]]) -> str:
    candidate, number = name, 2
    while (folder, snake(candidate)) in used:  # file systems may not tell A from a
        candidate, number = f"{name}_{number}", number + 1
    used.add((folder, snake(candidate)))
    return candidate


# --- Files of the package ---


PACKAGE = "generated_modules"
MARK = (
    '"""Formulas of module classes, written by `torchstone formula generate`; changes are lost when it runs again."""'
)
_RUNTIME = ("base.py", "exact.py", "registry.py")


def generated_files(formulas: Formulas) -> dict[str, str]:
    """The text of every file by its path in the package; a database with mistakes is refused."""
    problems = list(problems_of(formulas))
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        msg = f"nothing was generated: {problems[0]}{more}"
        raise FormulaError(msg)
    places = places_of(formulas.entries.values())
    texts = _runtime_files()
    for folder in sorted({place.folder for place in places.values()}):
        texts[f"{folder}/__init__.py"] = f"{MARK}\n"
    for key, place in places.items():
        writer = _ClassWriter(formulas, places, formulas.entries[key])
        texts[f"{place.folder}/{place.file}.py"] = writer.text()
    return texts


def _runtime_files() -> dict[str, str]:
    """The files that every package has; the mark replaces the first line of __init__.py, a docstring."""
    runtime = files("torchstone.formula.codegen.generated")
    texts = {name: runtime.joinpath(name).read_text("utf-8") for name in _RUNTIME}
    _, _, rest = runtime.joinpath("__init__.py").read_text("utf-8").partition("\n")
    return {**texts, "__init__.py": f"{MARK}\n{rest}"}


def reachable(formulas: Formulas, text: str) -> Formulas:
    """The entries whose path contains a text, and all that these call."""
    wanted = [key for key, entry in formulas.entries.items() if text.lower() in name_of(entry).lower()]
    found: dict[str, FormulaEntry] = {}
    while wanted:
        key = wanted.pop()
        if key in found:
            continue
        found[key] = entry = formulas.entries[key]
        for quantity in known_quantities(entry):
            wanted += [key_of(one.module_path, one.variant) for one in called_entries(formulas, entry, quantity)]
    return Formulas(entries=dict(sorted(found.items())))


class _ClassWriter:
    """One class: its facts, and a static method for each quantity."""

    def __init__(self, formulas: Formulas, places: Mapping[str, Place], entry: FormulaEntry) -> None:
        self._formulas = formulas
        self._places = places
        self._entry = entry
        self._place = places[key_of(entry.module_path, entry.variant)]
        self._called: dict[str, FormulaEntry] = {}

    def text(self) -> str:
        """The whole file."""
        quantities = known_quantities(self._entry)
        methods = [line for quantity in quantities for line in self._method(quantity)]
        imports = [line for place in sorted(self._imported(), key=_import_order) for line in _import(place)]
        exact = ["from .. import exact as _exact"] if any("_exact." in line for line in methods) else []
        head = [MARK, "", *exact, "from ..base import GeneratedModule"]
        head += ["from ..exact import Value", *imports, "", "", f"class {self._place.class_name}(GeneratedModule):"]
        return "\n".join([*head, '    """What one call costs."""', "", *self._facts(quantities), *methods]) + "\n"

    def _imported(self) -> Iterator[Place]:
        own = key_of(self._entry.module_path, self._entry.variant)
        return (self._places[key] for key in sorted(self._called) if key != own)

    def _facts(self, quantities: list[Quantity]) -> list[str]:
        entry = self._entry
        lines = [f"    path = {literal(entry.module_path)}"]
        if entry.variant:
            lines.append(f"    variant = {literal(entry.variant)}")
        if entry.aliases:
            lines += _tuple("    aliases = ", [literal(alias) for alias in entry.aliases])
        if self._called:
            lines += _tuple("    depends = ", [literal(name_of(one)) for one in self._called.values()])
        lines += [f"    status = {literal(entry.validation.status)}", "    parameters = {"]
        for quantity in quantities:
            names = [literal(name) for name in entry.parameters(quantity)]
            lines += _tuple(f"        {literal(quantity)}: ", names, end=",")
        return [*lines, "    }"]

    def _method(self, quantity: Quantity) -> Iterator[str]:
        body = Statements(PythonPrinter(lambda node: self._call(node, quantity)), indent=8)
        for name in self._defaults_in_order(quantity):
            default = default_of(self._entry, name)
            assert default is not None  # noqa: S101 - only names with a default are listed
            body.add(f"if {name} is None:")
            body.assign_below(f"{name} = ", default)
        for condition in domain_of(self._entry):
            if set(free_parameters(condition)) <= set(self._entry.parameters(quantity)):
                self._require(body, condition)
        body.assign(RETURN, template_of(self._entry, quantity))
        yield from ("", "    @staticmethod", *self._signature(quantity), *body.lines)

    def _signature(self, quantity: Quantity) -> list[str]:
        names = self._entry.parameters(quantity)
        if not names:
            return [f"    def {quantity}() -> Value:"]
        defaults = self._entry.defaults
        given = [f"{name}: Value | None = None" if name in defaults else f"{name}: Value" for name in names]
        line = f"    def {quantity}(*, {', '.join(given)}) -> Value:"
        if len(line) <= LINE:
            return [line]
        inner = f"        *, {', '.join(given)}"
        if len(inner) <= LINE:
            return [f"    def {quantity}(", inner, "    ) -> Value:"]
        return [f"    def {quantity}(", "        *,", *(f"        {one}," for one in given), "    ) -> Value:"]

    def _defaults_in_order(self, quantity: Quantity) -> list[str]:
        """The parameters with a default, each after those that its default needs."""
        needs = {}
        for name in self._entry.parameters(quantity):
            default = default_of(self._entry, name)
            if default is not None:
                needs[name] = [other for other in free_parameters(default) if other in self._entry.defaults]
        return [name for name in TopologicalSorter(needs).static_order() if name in needs]

    def _require(self, body: Statements, condition: Expression) -> None:
        explanation = f"{name_of(self._entry)} holds only where {show(condition, plain=True)}"
        text = PythonPrinter(lambda node: self._call(node, Quantity.FLOPS)).condition(condition)
        line = f"_exact.require({text}, {literal(explanation)})"
        if len(line) + 8 <= LINE:
            body.add(line)
            return
        for one in ("_exact.require(", f"    {text},", f"    {literal(explanation)},", ")"):
            body.add(one)

    def _call(self, node: Call, quantity: Quantity) -> tuple[str, list[tuple[str, Expression]]]:
        called = called_entry(self._formulas, self._entry, quantity, node.module)
        key = key_of(called.module_path, called.variant)
        self._called[key] = called
        place = self._places[key]
        bound = bind(called, quantity, node.arguments, dict(node.named))
        return f"{place.imported_as}.{place.class_name}.{quantity}", list(bound.items())


def _import_order(place: Place) -> tuple[str, str]:
    return place.folder, place.file


def _import(place: Place) -> list[str]:
    name = f"{place.file} as {place.imported_as}"
    line = f"from ..{place.folder} import {name}"
    return [line] if len(line) <= LINE else [f"from ..{place.folder} import (", f"    {name},", ")"]


def _tuple(prefix: str, items: list[str], *, end: str = "") -> list[str]:
    """A tuple on one line where it fits, else one item a line."""
    inner = ", ".join(items) + ("," if len(items) == 1 else "")
    line = f"{prefix}({inner}){end}"
    if len(line) <= LINE:
        return [line]
    indent = " " * (len(prefix) - len(prefix.lstrip()) + 4)
    return [f"{prefix}(", *(f"{indent}{item}," for item in items), f"{indent[4:]}){end}"]


# --- Writing: the folder is either the whole new package or the whole old one ---


def write_package(folder: Path, texts: Mapping[str, str]) -> Path:
    """Write the package into a folder; one that was generated before is replaced, anything else is left alone."""
    package = folder / PACKAGE
    refuse_foreign(folder)
    try:
        with exclusive(folder, wait_s=SHORT_WRITE_S, way_out="choose another --out"):
            for left in folder.glob(f".{PACKAGE}-*"):  # by a command that was killed
                remove_tree(left)
            _replace(package, texts)
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; choose another --out"
        raise InputError(msg) from error
    return package


def _replace(package: Path, texts: Mapping[str, str]) -> None:
    unfinished = Path(mkdtemp(prefix=f".{PACKAGE}-", dir=package.parent))
    old = unfinished / "old"
    try:
        _fill(unfinished / PACKAGE, texts)
        if package.exists():
            package.rename(old)
        try:
            (unfinished / PACKAGE).rename(package)
        except OSError:
            if old.exists():
                old.rename(package)
            raise
    finally:
        remove_tree(unfinished)


def _fill(package: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds a package of this name which was not generated."""
    package = folder / PACKAGE
    if not package.exists():
        return
    start = package / "__init__.py"
    if not start.is_file() or not start.read_text("utf-8", errors="replace").startswith(MARK):
        msg = f"{package} was not written by `torchstone formula generate`; move it away or choose another --out"
        raise InputError(msg)
