import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.store.builders import at, relu, seen
from torchstone.errors import InputError, UnreadableFileError
from torchstone.store.database import Store
from torchstone.store.engine import address_of, engine_for, reading_from, writing_to

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
