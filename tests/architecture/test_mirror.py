"""The folders of the tests are those of the package; which file tests what inside a folder is free."""

from pathlib import Path

from tests.architecture.repository import PACKAGE, TESTS

NO_SOURCE = {
    "architecture": "the repository as a whole",
    "attacks": "hostile and damaged files for all readers",
    "golden": "kept outputs",
    "tools": "the scripts of tools/",
    "report/pages": "the page in a real browser",
}


def folders_with(pattern: str, root: Path) -> set[str]:
    """Folders below a root with such a file in them or below them."""
    parents = {parent for path in root.rglob(pattern) for parent in path.relative_to(root).parents}
    return {parent.as_posix() for parent in parents} - {"."}


def is_exempt(folder: str) -> bool:
    return any(folder == name or folder.startswith(f"{name}/") for name in NO_SOURCE)


def test_every_source_folder_has_its_test_folder() -> None:
    assert sorted(folders_with("*.py", PACKAGE) - folders_with("test_*.py", TESTS)) == []


def test_every_test_folder_has_its_source_folder() -> None:
    found = folders_with("test_*.py", TESTS) - folders_with("*.py", PACKAGE)

    assert sorted(folder for folder in found if not is_exempt(folder)) == []


def test_every_exception_is_still_needed() -> None:
    assert [name for name in NO_SOURCE if not (TESTS / name).is_dir() or (PACKAGE / name).is_dir()] == []
