from pathlib import Path
from typing import Any

import pytest

from tests.architecture.repository import load_tool

SOURCE = '''"""A docstring is one token."""

from typing import Any

# a comment on a line of its own


def first(value: Any) -> Any:  # a comment beside code
    return value
'''


@pytest.fixture(scope="module")
def figures() -> Any:
    return load_tool("figures")


def test_comments_and_layout_are_no_tokens(figures: Any, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(SOURCE)

    size = figures.size_of(tmp_path)

    assert size.tokens == 17  # the docstring, 4 of the import, 10 of the first line, 2 of the second
    assert size.own_line_comments == 1
    assert size.any_uses == 2


def test_densities_do_not_change_when_a_file_is_split(figures: Any, tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(SOURCE)

    size = figures.size_of(tmp_path)

    assert (len(size.file_lines), size.lines) == (2, 18)
    assert size.per_thousand_lines(size.any_uses) == pytest.approx(222.22)


def test_a_tree_without_the_package_is_refused(figures: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["figures.py", str(tmp_path)])

    with pytest.raises(SystemExit, match="no src/torchstone"):
        figures.main()
