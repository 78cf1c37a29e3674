"""Class paths -> folders, files and class names of a generated package."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from keyword import iskeyword

from torchstone.formula.names import key_of, public_alias
from torchstone.record.formula import FormulaEntry

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
