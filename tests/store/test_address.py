from pathlib import Path

import pytest

from torchstone.errors import InputError, MissingExtraError
from torchstone.store.engine import address_of, display_name, file_of, without_password


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
