from pathlib import Path

import pytest

from tests.cli.databases import database_in
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.store.database import Store


def test_the_contents_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = database_in(tmp_path)
    with Store.open(database) as store:
        before = list(store.configurations())

    assert run(["db", "vacuum", "--db", database]) == EXIT_FINE

    with Store.open(database) as store:
        assert list(store.configurations()) == before
    assert "KiB -> " in capsys.readouterr().out


def test_a_missing_database_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "vacuum", "--db", str(tmp_path / "x.db")]) == EXIT_BAD_INPUT

    assert "there is no database" in capsys.readouterr().err
