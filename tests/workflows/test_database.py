from pathlib import Path

import pytest

from tests.cli.databases import database_in
from torchstone.errors import InputError, UnreadableFileError
from torchstone.workflows.database import (
    ConfigurationFilter,
    database_address,
    existing_database,
    open_store,
    query_of,
    with_database,
)


def test_the_option_comes_before_the_environment_and_the_usual_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHSTONE_DB", raising=False)
    assert database_address(None) == "torchstone.db"

    monkeypatch.setenv("TORCHSTONE_DB", "mine.db")
    assert database_address(None) == "mine.db"
    assert database_address("given.db") == "given.db"


def test_a_database_is_made_only_for_commands_that_write(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="there is no database"):
        open_store(str(tmp_path / "x.db"))
    open_store(str(tmp_path / "x.db"), create=True).close()

    assert (tmp_path / "x.db").is_file()


def test_a_part_of_a_name_stands_for_all_that_contain_it(tmp_path: Path) -> None:
    with open_store(database_in(tmp_path)) as store:
        query = query_of(store, ConfigurationFilter(model="TINY", source="a", rank=2))

    assert query.models == ("acme/Tiny-1B",)
    assert query.sources == (str(tmp_path / "albert.txt"), "models/demo.py::test_demo [HF_MODEL:acme/Tiny-1B]")
    assert query.rank == 2


def test_a_whole_name_stands_for_itself_alone(tmp_path: Path) -> None:
    with open_store(database_in(tmp_path)) as store:
        assert query_of(store, ConfigurationFilter(model="albert")).models == ("albert",)


def test_a_name_that_nothing_has_is_an_error_with_the_names_there_are(tmp_path: Path) -> None:
    with (
        open_store(database_in(tmp_path)) as store,
        pytest.raises(InputError, match=r"no model contains 'gpt'.*albert"),
    ):
        query_of(store, ConfigurationFilter(model="gpt"))


def test_a_hint_names_the_database_that_was_given_and_no_password() -> None:
    assert with_database("torchstone ops", None) == "torchstone ops"
    assert with_database("torchstone ops", "x.db") == "torchstone ops --db x.db"
    assert with_database("torchstone ops", "postgresql://me:pw@h/x") == "torchstone ops --db postgresql://me@h/x"


def test_results_are_kept_in_a_database_that_is_named_or_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHSTONE_DB", raising=False)
    assert existing_database(None) is None
    assert existing_database("new.db") == "new.db"

    open_store(None, create=True).close()
    assert existing_database(None) == "torchstone.db"
