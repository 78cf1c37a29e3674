import json
import sqlite3
import sys
from pathlib import Path

import pytest

from tests.sweep.builders import mm, seen
from torchstone.backends.ttnn_trace_text import UNREADABLE
from torchstone.record.config import SeenConfiguration, merged
from torchstone.store.database import Store
from torchstone.sweep.master_entries import (
    is_server,
    position_of,
    read_database,
    read_master,
    spellings,
    without_password,
)

V1_TENSOR = {
    "Tensor": {
        "tensor_spec": {
            "logical_shape": [1, 32],
            "tensor_layout": {
                "dtype": "DataType::BFLOAT16",
                "memory_config": {
                    "memory_layout": "TensorMemoryLayout::INTERLEAVED",
                    "buffer_type": "BufferType::DRAM",
                },
            },
        },
        "storage_type": "StorageType::DEVICE",
        "layout": "Layout::TILE",
    }
}
BROKEN = '{"arg0": {"Tensor": {"grid":{[{"x":0,"y":0} - {"x":7,"y":5}], [{"x":0,"y":6} - {"x":0,"y":6}]}}}}'


def v1(*arguments: object) -> dict[str, object]:
    return {"arguments": list(arguments), "source": "models/a.py"}


def file_with(tmp_path: Path, operations: dict[str, object]) -> Path:
    path = tmp_path / "master.json"
    path.write_text(json.dumps({"operations": operations}), encoding="utf-8")
    return path


def test_arguments_of_the_list_layout_are_named_and_their_texts_read(tmp_path: Path) -> None:
    path = file_with(
        tmp_path,
        {"ttnn::permute": {"configurations": [v1({"arg0": V1_TENSOR}, {"arg1": "[0, 2, 3, 1]"}, {"arg2": "nullopt"})]}},
    )

    (entry,), known = read_master(path, "permute")

    assert entry.arguments == {"arg0": V1_TENSOR, "arg1": [0, 2, 3, 1], "arg2": None}
    assert (entry.is_list, entry.executions, known) == (True, [{"source": "models/a.py"}], ["ttnn::permute"])


def test_an_argument_with_a_shard_grid_is_repaired(tmp_path: Path) -> None:
    path = file_with(tmp_path, {"ttnn::add": {"configurations": [v1({"UnparsedElement": {"element_info": BROKEN}})]}})

    (entry,), _ = read_master(path, "add")

    corners = entry.arguments["arg0"]["Tensor"]["grid"]
    ranges = [((0, 0), (7, 5)), ((0, 6), (0, 6))]
    assert corners == [{"start": {"x": x, "y": y}, "end": {"x": to_x, "y": to_y}} for (x, y), (to_x, to_y) in ranges]


@pytest.mark.parametrize(
    "element",
    [
        {"UnparsedElement": {"element_info": '{"arg0": {...}}'}},
        {"arg0": "[ unsupported type , x]"},
        {"arg0": "[{...}, {...}]"},
    ],
)
def test_what_cannot_be_read_is_kept_and_flagged(tmp_path: Path, element: dict[str, object]) -> None:
    path = file_with(tmp_path, {"ttnn::add": {"configurations": [v1(element)]}})

    (entry,), _ = read_master(path, "add")

    assert UNREADABLE in entry.arguments["arg0"]


def test_the_dictionary_layout_keeps_its_hash_and_executions(tmp_path: Path) -> None:
    told = {"arguments": {"arg0": 1}, "config_hash": "abc", "executions": [{"source": "a", "count": 3}]}
    path = file_with(tmp_path, {"ttnn.add": {"configurations": [told]}})

    (entry,), _ = read_master(path, "ttnn::add")

    assert (entry.config_hash, entry.is_list, entry.executions) == ("abc", False, [{"source": "a", "count": 3}])


def test_a_file_that_is_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("[]", encoding="utf-8")

    with pytest.raises(ValueError, match=r"bad\.json is not a master file"):
        read_master(tmp_path / "bad.json", "add")


def test_an_op_is_looked_for_under_all_its_names() -> None:
    assert {"ttnn.add", "ttnn::add", "ttnn.experimental.add", "aten.add.Tensor"} <= set(spellings("add"))
    assert "ttnn::transformer::sdpa" in spellings("ttnn.sdpa")
    assert (position_of("arg12"), position_of("dim")) == (12, None)


def twice_seen() -> SeenConfiguration:
    return merged(seen(mm(), model="bert"), seen(mm(), model="gpt"))


def filled(address: str) -> str:
    with Store.open(address) as store:
        store.add([twice_seen(), seen(mm(5, 6, 7), model="bert")])
    return address


def test_the_calls_of_an_op_are_read_with_all_that_they_were_seen_in(tmp_path: Path) -> None:
    entries, known = read_database(filled(str(tmp_path / "x.db")), "mm")

    (entry,) = (one for one in entries if one.config_hash == mm().key)
    assert len(entries) == 2
    assert known == ["aten.mm.default"]
    assert entry.is_aten
    assert entry.arguments["self"]["shape"] == [2, 3]
    assert entry.executions == [{"source": "bert"}, {"source": "gpt"}]


def test_postgresql_gives_the_same(tmp_path: Path, postgres_url: str) -> None:
    file = filled(str(tmp_path / "x.db"))

    server = filled(postgres_url)

    assert read_database(server, "aten.mm.default") == read_database(file, "aten.mm.default")
    assert read_database(server.replace("postgresql:", "postgresql+psycopg:"), "sin") == ([], ["aten.mm.default"])


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_text("no database", encoding="utf-8")

    with pytest.raises(ValueError, match=r"bad\.db is not a database of torchstone"):
        read_database(str(tmp_path / "bad.db"), "add")


def test_a_view_in_the_place_of_a_table_is_refused(tmp_path: Path) -> None:
    """It may compute without end."""
    with sqlite3.connect(filled(str(tmp_path / "x.db"))) as connection:
        connection.executescript(
            "ALTER TABLE configuration RENAME TO was; CREATE VIEW Configuration AS "
            "WITH RECURSIVE c(op) AS (SELECT 'a' UNION ALL SELECT op FROM c) SELECT op FROM c"
        )
    connection.close()

    with pytest.raises(ValueError, match="it computes what a table has, as a view does"):
        read_database(str(tmp_path / "x.db"), "mm")


def test_a_server_that_does_not_answer_is_named_without_the_password() -> None:
    with pytest.raises(ValueError, match=r"cannot read postgresql://me@127\.0\.0\.1:1/x: "):
        read_database("postgresql://me:secret@127.0.0.1:1/x", "add")


def test_a_missing_driver_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(ModuleNotFoundError, match="pip install"):
        read_database("postgresql://me@127.0.0.1/x", "add")


@pytest.mark.parametrize(
    ("address", "yes"), [("postgresql://h/x", True), ("postgres://h/x", True), ("x.db", False), ("sqlite:///x", False)]
)
def test_a_server_is_known_by_its_address(address: str, yes: bool) -> None:  # noqa: FBT001 - a case of the table
    assert is_server(address) is yes
    assert without_password(address) == address
