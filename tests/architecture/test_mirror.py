from pathlib import Path

from tests.architecture.repository import PACKAGE, TESTS, source_files

TESTED_ELSEWHERE: dict[str, str] = {}  # a source file -> why it has no test file of its own
NO_SOURCE = {
    "architecture": "tests of the repository as a whole",
    "numerics/test_definition.py": "the judge against its definition, whichever file computes it",
    "numerics/test_one_judge.py": "check, sweep and reference on the same pairs",
    "report/pages": "the page in a real browser",
    "report/test_section_example.py": "the section that a page of the docs shows",
    "report/test_scripts.py": "the page's scripts in a script engine",
    "backends/test_documented_backend.py": "the backend that a page of the docs shows",
    "capture/test_architectures.py": "captures of the public list, whichever file did it",
    "cost/test_architectures.py": "costs of the public list, whichever price they come from",
    "workers/test_documented_examples.py": "the Python of the page on isolation, run as it stands",
    "formula/test_documented_examples.py": "the examples of the formula pages, run as they stand",
    "cost/test_documented_examples.py": "the Python of the cost pages, run as it stands",
}


def mirror_of(path: Path) -> Path:
    inside = path.relative_to(PACKAGE)
    return TESTS / inside.parent / f"test_{inside.name}"


def test_every_source_file_has_its_test_file() -> None:
    untested = [
        path.relative_to(PACKAGE).as_posix()
        for path in source_files()
        if path.name != "__init__.py" and not mirror_of(path).is_file()
    ]

    assert [name for name in untested if name not in TESTED_ELSEWHERE] == []


def test_every_exception_is_still_needed() -> None:
    gone = [name for name in TESTED_ELSEWHERE if not (PACKAGE / name).is_file() or mirror_of(PACKAGE / name).is_file()]

    assert gone == []


def test_every_test_file_has_its_source_file() -> None:
    mirrored = {mirror_of(path) for path in source_files()}
    found = (path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py") if path not in mirrored)

    assert [name for name in found if not name.startswith(tuple(NO_SOURCE))] == []
