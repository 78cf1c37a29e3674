"""The prompt for an agent (source, measurements, language, earlier mistakes), and its answer read as data."""

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import msgspec

from torchstone.errors import FormulaError
from torchstone.formula.database.files import Formulas, short_name
from torchstone.formula.database.templates import name_of
from torchstone.record.base import Record
from torchstone.record.formula import CodeLocation, FlopAnalysis, MeasuredCost, MemoryAnalysis, Quantity

# --- Source of a class and its configuration, read without importing them ---


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


# --- The question: source, measurements, formula language, and what was wrong so far ---


_LONGEST_SOURCE = 60_000

_TASK = """\
Write the cost of one forward call of a PyTorch module class as formulas.

Answer with one JSON object and nothing else. It is data: formulas are read by a parser, never run. Its form:

{
 "flop_analysis": {
  "parameters": ["B", "S"], "formula_template": "...", "module_depends": ["class paths that are called"],
  "breakdown": {"name of a part": "its template"}, "thinking_process": "how you found it"
 },
 "memory_analysis": {
  "parameters": ["B", "S", "dtype_bytes"], "reads_template": "...", "writes_template": "...",
  "intermediates_template": "...", "weights_template": "...",
  "module_depends": [], "thinking_process": "..."
 },
 "defaults": {"parameter": "its value where it is not given"},
 "domain": ["conditions under which the formulas hold"],
 "assumptions": ["what else must hold, in words"]
}

The language of templates: ${parameter}, {Module}(arguments by position or name), integers and exact decimals,
+ - * / // % **, min, max, ceil, floor, ceil_log2, log2, comparisons, and, or, not, `a if c else b`.
Nothing else.
{Module}(...) stands for the same quantity of another module. The parts of the breakdown add up to the formula.

A multiply-add is two FLOPs. Every op reads its inputs once and writes its outputs once; views cost nothing.
Intermediates are the peak bytes of activations that are live at one time, inputs and outputs included: often the
maximum of a few sums. Weights are the bytes of parameters and buffers, each storage once. Write null for one of these
two that you cannot find: a wrong one refuses the answer.
Use exactly the parameters of the measurements, with their names. The formulas must equal every measurement exactly.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An answer, and what was wrong with it."""

    answer: str
    problem: str


def question_text(
    class_path: str,
    source: ClassSource,
    points: Sequence[MeasuredCost],
    formulas: Formulas,
    failure: str = "",
) -> str:
    """The first question about a class."""
    parts = [_TASK, f"The class is {class_path}. Its source, from {source.location.file}:", _fenced(source.text)]
    if source.config:
        parts += ["It is built from this configuration:", _fenced(source.config)]
    callable_now = _signatures(formulas, source.text)
    if callable_now:
        parts.append("Modules whose formulas are known, with the parameters of FLOPs and of bytes:\n" + callable_now)
    parts.append("What was measured, in FLOPs and bytes:\n" + "\n".join(_measured(point) for point in points))
    if failure:
        parts.append(f"The formula could not be derived by itself: {failure}")
    return "\n\n".join(parts)


def follow_up(question: str, attempts: Sequence[Attempt]) -> str:
    """The question again, with every answer so far and what was wrong with it."""
    parts = [question]
    for number, attempt in enumerate(attempts, start=1):
        parts.append(f"Answer {number} was:\n{_fenced(attempt.answer[:_LONGEST_SOURCE])}")
        parts.append(f"It was refused: {attempt.problem}. Correct it and answer with the whole JSON object again.")
    return "\n\n".join(parts)


def _fenced(text: str) -> str:
    return f"```\n{text[:_LONGEST_SOURCE]}\n```"


def _measured(point: MeasuredCost) -> str:
    return json.dumps({"parameters": point.parameters, **{str(one): size for one, size in point.quantities.items()}})


def _signatures(formulas: Formulas, source: str) -> str:
    """The entries that the source seems to use."""
    lines = []
    for entry in formulas.entries.values():
        if short_name(entry.module_path) in source:
            flops, memory = (", ".join(entry.parameters(one)) for one in (Quantity.FLOPS, Quantity.READS))
            lines.append(f"{name_of(entry)}: ({flops}) and ({memory})")
    return "\n".join(lines)


# --- The answer: only data is read from it, never code ---


MAX_ANSWER_CHARACTERS = 1_000_000


class Answer(Record, frozen=True, kw_only=True):
    """The parts of an entry that an agent writes; the others are known."""

    flop_analysis: FlopAnalysis
    memory_analysis: MemoryAnalysis
    defaults: dict[str, str] = {}
    domain: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def read_answer(text: str) -> Answer:
    """The first JSON object in the text that is an answer; words around it are left out."""
    if len(text) > MAX_ANSWER_CHARACTERS:
        msg = f"the answer has {len(text)} characters, more than {MAX_ANSWER_CHARACTERS}"
        raise FormulaError(msg)
    found = _first_object(text)
    if found is None:
        msg = "the answer holds no JSON object with the key flop_analysis"
        raise FormulaError(msg)
    try:
        return msgspec.convert(found, Answer)
    except msgspec.ValidationError as error:
        msg = f"the answer does not have the requested form: {error}"
        raise FormulaError(msg) from error


def _first_object(text: str) -> dict[str, object] | None:
    decoder = json.JSONDecoder()
    position = text.find("{")
    while position >= 0:
        try:
            found, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            position = text.find("{", position + 1)
            continue
        if isinstance(found, dict) and "flop_analysis" in found:
            return found
        position = text.find("{", end)
    return None
