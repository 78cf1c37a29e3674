import sys
from pathlib import Path

import pytest

from torchstone.errors import FormulaError
from torchstone.formula.agent.prompt import source_of_class

TEXT = '''raise RuntimeError("this file must not be run")


class Net:
    """Doubles."""

    def forward(self, x):
        return 2 * x


class After: pass
'''


CONFIGURED = """class Net:
    def __init__(self, config: NetConfig) -> None:
        pass
"""
IMPORTS = {
    "by_sibling": "from .config import NetConfig",
    "by_parent": "from ..inner.config import NetConfig",
    "by_path": "from some_library.inner.config import NetConfig",
    "in_place": "class NetConfig:\n    hidden = 8",
}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "some_library" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text(TEXT)
    (package / "net.py").write_text(TEXT)
    (tmp_path / "single_file.py").write_text(TEXT)
    (package / "config.py").write_text("class NetConfig:\n    hidden = 8\n")
    for name, line in IMPORTS.items():
        (package / f"{name}.py").write_text(f"{line}\n\n\n{CONFIGURED}")
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


@pytest.mark.parametrize("name", IMPORTS)
@pytest.mark.usefixtures("library")
def test_the_configuration_is_found_where_it_is_imported_from(name: str) -> None:
    assert source_of_class(f"some_library.inner.{name}.Net").config == "class NetConfig:\n    hidden = 8"


def test_a_configuration_that_cannot_be_found_is_left_out(library: Path) -> None:
    (library / "odd.py").write_text(f"from nowhere.at_all import NetConfig\n\n\n{CONFIGURED}")
    (library / "star.py").write_text(f"from nowhere import *\n\n\n{CONFIGURED}")

    assert source_of_class("odd.Net").config == source_of_class("star.Net").config == ""
    assert source_of_class("single_file.Net").config == ""


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
