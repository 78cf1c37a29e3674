"""The Python of the page on sweeps, run as it stands."""

import re
from pathlib import Path

import pytest

from tests.cli.sweeps import database
from tests.sweep.builders import mm

PAGE = Path(__file__).parents[2] / "docs" / "commands" / "sweep.md"


def test_the_example_generates_vectors_and_runs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    database(Path("torchstone.db"), mm(2, 3, 4), mm(5, 6, 7))
    found = re.search(r"## From Python.*?```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None

    exec(found[1], {})  # noqa: S102 - our own documentation

    assert capsys.readouterr().out == "eager {'PASS': 2}\n"
