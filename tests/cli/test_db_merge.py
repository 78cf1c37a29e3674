from pathlib import Path

import pytest

from tests.cli.databases import database_in
from tests.store.builders import at, relu, seen
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.store.database import Store


def small(folder: Path) -> str:
    path = str(folder / "small.db")
    with Store.open(path) as store:
        store.add([seen(relu(2), at())])
    return path


def exported(folder: Path, database: str) -> bytes:
    run(["db", "export", str(folder / "x.jsonl"), "--db", database, "-q"])
    return (folder / "x.jsonl").read_bytes()


def test_the_order_of_merging_does_not_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = database_in(tmp_path), small(tmp_path)

    for name, order in (("a.db", [one, other]), ("b.db", [other, one, one])):
        assert run(["db", "merge", *order, "--db", str(tmp_path / name)]) == EXIT_FINE

    assert exported(tmp_path, str(tmp_path / "a.db")) == exported(tmp_path, str(tmp_path / "b.db"))
    assert "ops.db: 6 configurations were new, 0 were known" in capsys.readouterr().out


def test_a_database_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["db", "merge", small(tmp_path), str(tmp_path / "x.db"), "--db", str(tmp_path / "y.db")]) == EXIT_BAD_INPUT
    )

    assert "there is no database" in capsys.readouterr().err
    assert not (tmp_path / "y.db").exists()
