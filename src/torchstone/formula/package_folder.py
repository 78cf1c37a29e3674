"""Generated files -> a folder that is either the whole new package or the whole old one."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp

from torchstone.errors import InputError
from torchstone.formula.generating import MARK, PACKAGE


def write_package(folder: Path, texts: Mapping[str, str]) -> Path:
    """Write the package into a folder; one that was generated before is replaced, anything else is left alone."""
    package = folder / PACKAGE
    refuse_foreign(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = Path(mkdtemp(prefix=f".{PACKAGE}-", dir=folder))
        try:
            _fill(unfinished / PACKAGE, texts)
            if package.exists():
                package.rename(unfinished / "old")
            (unfinished / PACKAGE).rename(package)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; choose another --out"
        raise InputError(msg) from error
    return package


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
