import pytest

from torchstone.cli.database_options import command_line


def test_a_command_is_kept_without_the_password_of_its_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["torchstone", "trace", "a b.py", "--db=postgresql://me:secret@host/x"])

    assert command_line() == "torchstone trace 'a b.py' --db=postgresql://me@host/x"
