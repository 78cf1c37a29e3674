from pathlib import Path

from tests.architecture.repository import PACKAGE, TESTS, source_files

UNTESTED: dict[str, str] = {}  # a source folder -> why it has no test folder of its own
NO_SOURCE = {
    "architecture": "tests of the repository as a whole",
    "golden": "recorded outputs, compared by the tests beside what makes them",
    "report/pages": "the page in a real browser",
}


def folders_with(files: list[Path], root: Path) -> set[str]:
    return {path.parent.relative_to(root).as_posix() for path in files}


def test_every_source_folder_has_its_test_folder() -> None:
    sources = folders_with([path for path in source_files() if path.name != "__init__.py"], PACKAGE)
    tests = folders_with(list(TESTS.rglob("test_*.py")), TESTS)

    assert sorted(sources - tests - UNTESTED.keys()) == []


def test_every_test_folder_has_its_source_folder() -> None:
    sources = folders_with(source_files(), PACKAGE)
    tests = folders_with(list(TESTS.rglob("test_*.py")), TESTS)

    assert [name for name in sorted(tests - sources) if not name.startswith(tuple(NO_SOURCE))] == []
