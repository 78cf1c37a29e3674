import sys
from pathlib import Path

import pytest

from tests.sweep.builders import mm, seen
from torchstone.record.config import SeenConfiguration, merged
from torchstone.store.database import Store
from torchstone.sweep.master_config_loader import is_server, read_database, without_password


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
