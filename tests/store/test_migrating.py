import subprocess
import sys
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text

from tests.store.builders import at, relu, seen
from torchstone.errors import NewerSchemaError, UnreadableFileError
from torchstone.store import engine
from torchstone.store.database import Store
from torchstone.store.engine import (
    VERSION_TABLE,
    address_of,
    current_version,
    engine_for,
    is_current,
    known_versions,
    migrate,
    reading_from,
    writing_to,
)


def test_an_empty_database_gets_all_steps(database: str) -> None:
    engine = engine_for(address_of(database))
    with reading_from(engine) as connection:
        assert current_version(connection, origin="x") is None
        assert not is_current(connection, origin="x")
    with writing_to(engine) as connection:
        migrate(connection, origin="x")
    with reading_from(engine) as connection:
        assert is_current(connection, origin="x")
    engine.dispose()


def test_migrating_again_changes_nothing(database: str) -> None:
    with Store.open(database) as store:
        store.add([seen(relu(2), at())])
        with writing_to(store.engine) as connection:
            migrate(connection, origin="x")

        assert store.info().configurations == 1


def test_a_step_that_fails_leaves_the_database_as_it_was(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alembic.migration.MigrationContext.stamp", fail)
    with pytest.raises(RuntimeError, match="power cut"):
        Store.open(database)
    monkeypatch.undo()

    with Store.open(database) as store:
        assert store.info().configurations == 0


def fail(*_: object) -> None:
    msg = "power cut"
    raise RuntimeError(msg)


def test_a_database_of_a_newer_torchstone_is_refused(database: str) -> None:
    with Store.open(database) as store, writing_to(store.engine) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))  # noqa: S608 - our own words

    with pytest.raises(NewerSchemaError, match="upgrade torchstone"):
        Store.open(database)


def test_the_file_of_another_program_is_refused_and_left_alone(sqlite_file: str) -> None:
    engine = engine_for(address_of(sqlite_file))
    with writing_to(engine) as connection:
        connection.execute(text("CREATE TABLE theirs (a)"))

    with pytest.raises(UnreadableFileError, match="another program"):
        Store.open(sqlite_file)
    with reading_from(engine) as connection:
        names = connection.execute(text("SELECT name FROM sqlite_master")).scalars().all()

    assert names == ["theirs"]


def test_every_step_follows_the_one_before_it_and_has_its_number_in_its_name() -> None:
    steps = list(ScriptDirectory(str(Path(engine.__file__).parent / "migrations")).walk_revisions())[::-1]

    assert [step.revision for step in steps] == known_versions()
    assert [step.down_revision for step in steps] == [None, *known_versions()[:-1]]


def test_a_database_that_is_up_to_date_is_opened_without_alembic(sqlite_file: str) -> None:
    Store.open(sqlite_file).close()
    program = (
        "import sys; from torchstone.store.database import Store\n"
        "Store.open(sys.argv[1], create=False).close(); print('alembic' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program, sqlite_file], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
