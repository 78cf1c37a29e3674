"""Python files -> a digest of them and of what they import, so that a stored result knows when its code has changed.

Runs in any environment of Python 3.10 or newer, and needs the standard library only. Imports are found in the text of
a file, not by running it: what a function imports when it is called counts, too.
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

_CODE = (".py", ".so", ".pyd", ".dylib", ".dll")
_INSTALLED = ("site-packages", "dist-packages")
_OWN_PACKAGE = "torchstone"
_BY_VERSION = frozenset({"numpy", "torch"})  # thousands of files, and a version that changes with every build


def closure(files: Iterable[Path]) -> tuple[dict[str, str], set[str]]:
    """The digest of each file and of each local file that it imports; and the names of the packages it imports."""
    ahead = [file.resolve() for file in files]
    found: dict[str, str] = {}
    packages: set[str] = set()
    while ahead:
        file = ahead.pop()
        if str(file) in found:
            continue
        try:
            content = file.read_bytes()
        except OSError:
            found[str(file)] = "missing"
            continue
        found[str(file)] = sha256(content).hexdigest()
        for level, name in _imported(content) if file.suffix == ".py" else ():
            if not level and name.partition(".")[0] == _OWN_PACKAGE:
                continue  # `own_digest` has it
            local = _local_files(file, level, name)
            ahead += local
            if not local and not level:
                packages.add(name.partition(".")[0])
    return dict(sorted(found.items())), packages


def backend_digest(backend_class: object) -> str:
    """Of the class's own file, of the local files that it imports, and of the packages that these import."""
    module = sys.modules.get(backend_class.__module__)
    place = getattr(module, "__file__", None) or _file_of(backend_class)
    files, packages = closure([Path(place)] if place else [])
    top = backend_class.__module__.partition(".")[0]
    packages |= set() if module is None or top == _OWN_PACKAGE else {top}
    parts = [f"{Path(name).name} {digest}" for name, digest in files.items()]
    parts += [f"{name} {_package_digest(name)}" for name in sorted(packages) if name not in sys.stdlib_module_names]
    return sha256("\n".join(parts).encode()).hexdigest()


def loaded_local_files() -> list[Path]:
    """The files of the modules of this process that are neither installed nor torchstone's own."""
    own = Path(__file__).resolve().parents[1]
    found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    files = [file for file in found if isinstance(file, str) and file.endswith(".py")]
    paths = {Path(file).resolve() for file in files if not _is_installed(Path(file))}  # links are followed for a few
    return sorted(path for path in paths if not _is_installed(path) and not path.is_relative_to(own))


def own_digest() -> str:
    """Of torchstone's own code: a tree that is being worked on changes without its version."""
    return _tree_digest(Path(__file__).resolve().parents[1], contents=True)


def _file_of(backend_class: object) -> str | None:
    """The file of a class that a file, not an importable module, defines."""
    for value in vars(backend_class).values():
        code = getattr(value, "__code__", None)
        if code is not None:
            return str(code.co_filename)
    return None


def _imported(content: bytes) -> Iterator[tuple[int, str]]:
    """The level and the name of every import in a text; `from a import b` may mean the module a.b."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, one.name) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield from ((node.level, f"{base}.{one.name}".strip(".")) for one in node.names)


def _local_files(file: Path, level: int, name: str) -> list[Path]:
    """The files that an import runs: packages on the way, and the module; none where it is installed or missing."""
    parts = name.split(".")
    if level:
        return _files_below(file.parents[level - 1], parts) if len(file.parents) >= level else []
    for root in _roots(file):
        found = _files_below(root, parts)
        if found and not _is_installed(found[0]):
            return found
    return []


def _files_below(root: Path, parts: list[str]) -> list[Path]:
    found: list[Path] = []
    folder = root
    for part in parts:
        if (folder / f"{part}.py").is_file():
            return [*found, (folder / f"{part}.py").resolve()]
        folder = folder / part
        if not folder.is_dir():
            return found
        if (folder / "__init__.py").is_file():
            found.append((folder / "__init__.py").resolve())
    return found


def _roots(file: Path) -> Iterator[Path]:
    """Where a local module may be: beside the file, above the packages it is in, and on the path of this process."""
    folder = file.parent
    yield folder
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
        yield folder
    yield Path.cwd()
    yield from (Path(entry) for entry in sys.path if entry and Path(entry).is_dir())


def _is_installed(path: Path) -> bool:
    return any(part in _INSTALLED for part in path.parts) or path.is_relative_to(_standard_library())


@cache
def _standard_library() -> Path:
    return Path(sysconfig.get_paths()["stdlib"]).resolve()


def _package_digest(name: str) -> str:
    """The version of an installed package, and the sizes and times of its files: builds often keep the version."""
    try:
        versions = [f"{one} {version(one)}" for one in sorted(set(_distributions().get(name, ())))]
    except PackageNotFoundError:
        versions = []
    if name in _BY_VERSION:
        return " ".join(versions)
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    folders = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    single = [] if spec is None or folders or not spec.has_location or spec.origin is None else [Path(spec.origin)]
    return " ".join(versions + [_tree_digest(one, contents=False) for one in (*folders, *single)])


_known_distributions: dict[str, list[str]] = {}


def _distributions() -> dict[str, list[str]]:
    if not _known_distributions:
        _known_distributions.update(packages_distributions())
    return _known_distributions


def _tree_digest(root: Path, *, contents: bool) -> str:
    """Of the code below a folder, or of one file: by content, or by size and time where there is much of it."""
    digest = sha256()
    files = [root] if root.is_file() else _code_below(root)
    for path in files:
        try:
            about = path.stat()
            digest.update(f"{path.relative_to(root)} {about.st_size}".encode())
            digest.update(path.read_bytes() if contents else str(about.st_mtime_ns).encode())
        except OSError:  # removed meanwhile
            digest.update(b"missing")
    return digest.hexdigest()


def _code_below(root: Path) -> list[Path]:
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        found += [Path(folder) / name for name in sorted(files) if name.endswith(_CODE) or ".so." in name]
    return found
