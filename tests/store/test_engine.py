import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text

from tests.store.builders import at, relu, seen
from torchstone.errors import InputError, MissingExtraError, NewerSchemaError, UnreadableFileError
from torchstone.store import engine, without_password
from torchstone.store.database import Store
from torchstone.store.engine import (
    VERSION_TABLE,
    address_of,
    current_version,
    display_name,
    engine_for,
    file_of,
    is_current,
    known_versions,
    migrate,
    reading_from,
    writing_to,
)

WRITERS, EACH = 2, 40


def add_some(database: str, writer: int) -> None:
    """What each process of the test does: half of it is the same for all."""
    with Store.open(database) as store:
        for number in range(EACH):
            mine = relu(number, writer + 1) if number % 2 else relu(number)
            store.add([seen(mine, at(run=str(writer), count=number + 1))])


def test_many_processes_may_write_at_once(database: str) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=add_some, args=(database, writer)) for writer in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(600)

    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    with Store.open(database, create=False) as store:
        assert store.info().configurations == EACH // 2 + WRITERS * EACH // 2
        assert store.info().calls == WRITERS * EACH * (EACH + 1) // 2
        assert store.faults() == ()


def test_a_writer_that_is_killed_loses_only_what_it_was_writing(sqlite_file: str) -> None:
    program = (
        "import sys; from tests.store.builders import *; from torchstone.store.database import Store\n"
        "store = Store.open(sys.argv[1])\n"
        "for number in range(100_000):\n"
        "    store.add([seen(relu(number), at())]); print(number, flush=True)\n"
    )
    root = Path(__file__).parent.parent.parent
    writer = subprocess.Popen(
        [sys.executable, "-c", program, sqlite_file],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"},
    )
    assert writer.stdout is not None
    reported = [int(writer.stdout.readline()) for _ in range(5)]
    time.sleep(0.05)
    writer.send_signal(signal.SIGKILL)
    reported += [int(line) for line in writer.stdout.read().split()]
    writer.wait(600)
    writer.stdout.close()

    with Store.open(sqlite_file, create=False) as store:
        found = store.info().configurations
        assert found in (len(reported), len(reported) + 1)
        assert store.faults() == ()


def test_a_reader_sees_one_state_while_others_write(database: str) -> None:
    with Store.open(database) as store:
        store.add([seen(relu(size)) for size in range(3)])
        everything = store.configurations()
        next(everything)

        store.add([seen(relu(size, 1)) for size in range(3)])

        assert len(list(everything)) == 2
        assert store.info().configurations == 6


@pytest.mark.parametrize("damage", [b"x" * 4096, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_damaged_file_is_reported_and_kept(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(damage)

    with pytest.raises(UnreadableFileError, match=r"damaged .*not changed"):
        Store.open(str(path))

    assert path.read_bytes() == damage


def test_damage_in_the_middle_is_reported_and_kept(sqlite_file: str) -> None:
    with Store.open(sqlite_file) as store:
        store.add([seen(relu(size), at()) for size in range(2000)])
        store.vacuum()
    content = bytearray(Path(sqlite_file).read_bytes())
    content[8192 : len(content) // 2] = b"\xee" * (len(content) // 2 - 8192)
    Path(sqlite_file).write_bytes(content)

    with pytest.raises(UnreadableFileError, match="damaged"), Store.open(sqlite_file) as store:
        list(store.configurations())

    assert Path(sqlite_file).read_bytes() == bytes(content)


def write_beyond_the_end(store: Store) -> None:
    with writing_to(store.engine) as connection:
        pages = connection.execute(text("PRAGMA page_count")).scalar_one()
        connection.execute(text(f"PRAGMA max_page_count = {pages}"))
        connection.execute(text("INSERT INTO trace_run VALUES ('a', 'b', 'c', :big)"), {"big": "x" * 1_000_000})


def test_a_full_disk_is_an_error_that_keeps_what_there_was(sqlite_file: str) -> None:
    with Store.open(sqlite_file) as store:
        store.add([seen(relu(1), at())])
        before = store.info()
        with pytest.raises(InputError, match="no space left"):
            write_beyond_the_end(store)

        assert store.info() == before


def test_a_file_that_another_program_holds_is_an_error(sqlite_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(sqlite_file) as store:
        store.add([])
    monkeypatch.setattr("torchstone.store.engine._WAIT_MS", 50)
    other = sqlite3.connect(sqlite_file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with Store.open(sqlite_file) as store, pytest.raises(InputError, match="in use by another program"):
            store.add([seen(relu(1))])
    finally:
        other.close()


def test_a_file_that_may_only_be_read_is_read(sqlite_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(sqlite_file) as store:
        store.add([seen(relu(1), at())])
    folder = Path(sqlite_file).parent
    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.setattr("os.access", lambda *_: False)

    with Store.open(sqlite_file, create=False) as store:
        assert store.info().configurations == 1
        assert sorted(path.name for path in folder.iterdir()) == before
        with pytest.raises(InputError, match="cannot be written to"):
            store.add([seen(relu(2))])


def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(InputError, match="cannot use the database postgresql://me:"):
        Store.open("postgresql://me:secret@127.0.0.1:9/x")


def test_a_reader_never_writes(database: str) -> None:
    engine = engine_for(address_of(database))
    with reading_from(engine) as connection:
        connection.execute(text("CREATE TABLE mine (a INTEGER)"))
    with reading_from(engine) as connection:
        tables = (
            "sqlite_master" if connection.dialect.name == "sqlite" else "pg_tables WHERE schemaname = current_schema()"
        )
        assert connection.execute(text(f"SELECT count(*) FROM {tables}")).scalar_one() == 0  # noqa: S608 - our own words
    engine.dispose()


@pytest.mark.parametrize(
    ("text", "path"), [("a.db", "a.db"), ("/x/a b.db", "/x/a b.db"), ("sqlite:///y/a.db", "y/a.db")]
)
def test_a_path_is_a_sqlite_file(text: str, path: str) -> None:
    assert file_of(address_of(text)) == Path(path)
    assert display_name(address_of(text)) == path


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_server_is_reached_through_psycopg(scheme: str) -> None:
    address = address_of(f"{scheme}://me:secret@host:5432/ops")

    assert address.drivername == "postgresql+psycopg"
    assert file_of(address) is None
    assert display_name(address) == "postgresql://me:***@host:5432/ops"


@pytest.mark.parametrize("text", ["mysql://x/y", "oracle://a", "sqlite://"])
def test_another_kind_of_database_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="SQLite or PostgreSQL"):
        address_of(text)


def test_what_is_no_address_is_refused_without_its_password() -> None:
    with pytest.raises(InputError, match="not a database address") as caught:
        address_of("postgresql://me:secret@host:port/x")

    assert "secret" not in str(caught.value)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    with pytest.raises(MissingExtraError, match=r"torchstone\[postgres\]"):
        address_of("postgresql://host/x")


@pytest.mark.parametrize(
    ("text", "clean"),
    [("postgresql://me:pw@h/x", "postgresql://me@h/x"), ("x://a:b@c:d@h", "x://a@h"), ("file.db", "file.db")],
)
def test_a_password_is_taken_out(text: str, clean: str) -> None:
    assert without_password(text) == clean


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


ENDLESS = "SELECT * FROM (WITH RECURSIVE c(id) AS (SELECT 1 UNION ALL SELECT id FROM c) SELECT id FROM c)"


@pytest.mark.parametrize(
    "statements",
    [
        f"ALTER TABLE configuration RENAME TO was; CREATE VIEW Configuration AS {ENDLESS}",
        f"CREATE TRIGGER t AFTER INSERT ON origin BEGIN {ENDLESS}; END",
        "ALTER TABLE place ADD COLUMN x TEXT AS (hex(zeroblob(400000000)))",
        "DROP TABLE sweep_result; CREATE VIRTUAL TABLE sweep_result USING fts5(run, vector, op, body)",
    ],
)
def test_a_table_that_is_computed_is_refused(sqlite_file: str, statements: str) -> None:
    Store.open(sqlite_file).close()
    with sqlite3.connect(sqlite_file) as connection:
        connection.executescript(statements)
    connection.close()

    with pytest.raises(UnreadableFileError, match=r"computes what its table \w+ has .* give another file with --db"):
        Store.open(sqlite_file)


def test_views_of_its_owner_are_left_alone(sqlite_file: str) -> None:
    Store.open(sqlite_file).close()
    with sqlite3.connect(sqlite_file) as connection:
        connection.execute("CREATE VIEW mine AS SELECT op FROM configuration")
    connection.close()

    with Store.open(sqlite_file) as store:
        assert store.op_names() == ()


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

    assert [step.revision for step in steps] == list(known_versions())
    assert [step.down_revision for step in steps] == [None, *known_versions()[:-1]]


def test_a_database_that_is_up_to_date_is_opened_without_alembic(sqlite_file: str) -> None:
    Store.open(sqlite_file).close()
    program = (
        "import sys; from torchstone.store.database import Store\n"
        "Store.open(sys.argv[1], create=False).close(); print('alembic' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program, sqlite_file], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
