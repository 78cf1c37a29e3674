"""SQLite files whose tables compute what a reader gets, or whose texts are no JSON that anything can read."""

import sqlite3
from pathlib import Path

import pytest

from tests.attacks.corpora import database
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.memory import ttnn_files
from torchstone.memory.ttnn_files import read_ttnn_file
from torchstone.store.database import Store
from torchstone.sweep.master_entries import read_database

LARGE = "hex(zeroblob(400000000))"  # of each row, 800 MB


def changed(path: Path, statements: str) -> Path:
    with sqlite3.connect(path) as connection:
        connection.executescript(statements)
    connection.close()
    return path


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "db.sqlite"
    path.write_bytes(database())
    tensors = "CREATE TABLE tensors (tensor_id int, address int); INSERT INTO tensors VALUES (1, 1400000), (2, 1300000)"
    return changed(path, tensors)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "torchstone.db"
    Store.open(str(path)).close()
    return path


@pytest.mark.parametrize("table", ["operations", "tensors", "buffers"])
def test_a_report_with_a_computed_column_is_not_read(
    table: str, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(report, f"ALTER TABLE {table} ADD COLUMN more TEXT AS ({LARGE})")

    assert run(["memory", "show", str(report)]) == EXIT_BAD_INPUT
    assert f"its table {table} is computed, as a view is, and not stored" in capsys.readouterr().err


def test_a_report_with_a_view_is_not_read_as_one_without_operations(
    report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endless = "WITH RECURSIVE c(operation_id) AS (SELECT 1 UNION ALL SELECT operation_id + 1 FROM c) SELECT * FROM c"
    changed(report, f"ALTER TABLE operations RENAME TO was; CREATE VIEW operations AS {endless}")

    assert run(["memory", "show", str(report)]) == EXIT_BAD_INPUT
    assert "its table operations is computed" in capsys.readouterr().err


@pytest.mark.parametrize("graph", ["[" * 100_000, "[" * 300 + "]" * 300, '[{"node_type": 1' + "0" * 400 + "}]", "\x00"])
def test_a_captured_graph_that_cannot_be_read_leaves_the_rest(graph: str, report: Path) -> None:
    before = read_ttnn_file(report)
    with sqlite3.connect(report) as connection:
        connection.execute("DROP TABLE IF EXISTS captured_graph")
        connection.execute("CREATE TABLE captured_graph (operation_id INT, captured_graph TEXT)")
        connection.execute("INSERT INTO captured_graph SELECT operation_id, ? FROM operations", (graph,))
    connection.close()

    assert len(read_ttnn_file(report).calls) == len(before.calls)


def test_each_table_of_a_report_is_read_once(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each operation: the time would grow with the square of the file."""
    read: list[str] = []
    rows = ttnn_files._Database.rows

    def counted(self: ttnn_files._Database, table: str) -> list[dict[str, object]]:
        read.append(table)
        return rows(self, table)

    monkeypatch.setattr(ttnn_files._Database, "rows", counted)

    assert len(read_ttnn_file(report).calls) > 1
    assert sorted(read) == sorted(set(read))


@pytest.mark.parametrize("command", ["ops", "ops aten.mm.default", "db info", "db verify", "db export out.jsonl"])
def test_a_store_with_a_computed_column_is_refused(
    command: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(store, f"ALTER TABLE configuration ADD COLUMN more TEXT AS ({LARGE})")

    assert run([*command.split(), "--db", str(store)]) == EXIT_BAD_INPUT
    assert "computes what its table configuration has" in capsys.readouterr().err


def test_a_store_with_a_computed_column_is_not_merged(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(store, f"ALTER TABLE configuration ADD COLUMN more TEXT AS ({LARGE})")

    assert run(["db", "merge", str(store), "--db", str(tmp_path / "other.db")]) == EXIT_BAD_INPUT
    assert "computes what its table configuration has" in capsys.readouterr().err


def test_nor_is_it_read_by_the_loader_of_sweeps(store: Path) -> None:
    changed(store, f"ALTER TABLE place ADD COLUMN more TEXT AS ({LARGE})")

    with pytest.raises(ValueError, match="it computes what a table has"):
        read_database(str(store), "mm")


def test_what_its_owner_adds_beside_the_tables_is_left_alone(store: Path) -> None:
    changed(store, f"CREATE TABLE mine (a, b AS ({LARGE})); CREATE VIEW ops AS SELECT op FROM configuration")  # noqa: S608

    assert run(["db", "info", "--db", str(store)]) == EXIT_FINE
