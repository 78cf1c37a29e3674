"""Vectors on disk: one file per module in FOLDER/vectors, replaced as a whole."""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.codec import load, save
from torchstone.record.vector import Vector, VectorFile

_FOLDER = "vectors"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST = 100


def write_vectors(folder: Path, files: Iterable[VectorFile]) -> list[Path]:
    """Write the suites that are given; other suites of the same modules stay. Gives the files that changed."""
    changed = []
    for new in files:
        path = folder / _FOLDER / f"{_file_name(new.module)}.json"
        suites = {vector.suite for vector in new.vectors}
        before = load(path, VectorFile) if path.is_file() else None
        others = [vector for vector in before.vectors if vector.suite not in suites] if before is not None else []
        merged = replace(new, vectors=tuple(sorted((*others, *new.vectors), key=lambda one: (one.suite, one.id))))
        if merged != before:
            save(path, merged)
            changed.append(path)
    return changed


def read_vectors(folder: Path) -> list[VectorFile]:
    """All vectors of a folder, by module."""
    place = folder / _FOLDER
    if not place.is_dir():
        msg = f"{folder} holds no vectors; make some with `torchstone sweep generate --dir {folder}`"
        raise UnreadableFileError(msg)
    return sorted((load(path, VectorFile) for path in place.glob("*.json")), key=lambda one: one.module)


def select(
    files: Sequence[VectorFile], *, modules: Sequence[str] = (), suites: Sequence[str] = (), vector_id: str = ""
) -> list[Vector]:
    """The vectors that fit: modules by the beginning of their names, one vector by the beginning of its id."""
    vectors = [
        vector
        for file in files
        if not modules or any(_names(wanted, file.module) for wanted in modules)
        for vector in file.vectors
        if not suites or vector.suite in suites
    ]
    if not vector_id:
        return vectors
    found = [
        vector for vector in vectors if vector.id.startswith(vector_id) or _digest(vector.id).startswith(vector_id)
    ]
    if len(found) != 1:
        what = "no vector" if not found else f"{len(found)} vectors"
        msg = f"{what} begin with {vector_id!r}; `torchstone sweep run --dry-run` lists them"
        raise InputError(msg)
    return found


def _digest(identity: str) -> str:
    """An id without the version of its rule in front."""
    return identity.partition("-")[2]


def _names(wanted: str, module: str) -> bool:
    return module == wanted or module.startswith(f"{wanted}.")


def _file_name(module: str) -> str:
    """A file name for a module's name; names that a file cannot have stay apart by a digest."""
    safe = _UNSAFE.sub("_", module)
    if safe == module and len(safe) <= _LONGEST:
        return safe
    return f"{safe[:_LONGEST]}-{sha256(module.encode()).hexdigest()[:8]}"
