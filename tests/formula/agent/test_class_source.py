import sys
from pathlib import Path

import pytest

from torchstone.errors import FormulaError
from torchstone.formula.agent.class_source import source_of_class

TEXT = '''raise RuntimeError("this file must not be run")


class Net:
    """Doubles."""

    def forward(self, x):
        return 2 * x


class After: pass
'''


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "some_library" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text(TEXT)
    (package / "net.py").write_text(TEXT)
    (tmp_path / "single_file.py").write_text(TEXT)
    (package / "broken.py").write_text("def (:")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("some_library.inner.net.Net", "some_library/inner/net.py"),
        ("some_library.inner.Net", "some_library/inner/__init__.py"),
        ("some_library.Net", "some_library/__init__.py"),
        ("single_file.Net", "single_file.py"),
    ],
)
def test_a_class_is_found_without_running_anything(library: Path, path: str, file: str) -> None:
    found = source_of_class(path)

    assert found.file == library / file
    assert (found.location.file, found.location.line_start, found.location.line_end) == (file, 4, 8)
    assert found.text.splitlines()[0] == "class Net:"
    assert "class After" not in found.text


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("some_library.inner.net.Missing", "has no class Missing"),
        ("some_library.nowhere.Net", "there is no "),
        ("no_such_library.Net", "give the whole path of an installed class"),
        ("Net", "give the whole path of an installed class"),
        ("some_library.inner.broken.Net", "cannot be read"),
    ],
)
@pytest.mark.usefixtures("library")
def test_what_cannot_be_found_is_named(path: str, reason: str) -> None:
    with pytest.raises(FormulaError, match=reason):
        source_of_class(path)
