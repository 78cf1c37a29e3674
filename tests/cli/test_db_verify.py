import json
import sqlite3
from pathlib import Path

import pytest

from tests.cli.databases import database_in
from torchstone.cli.main import run
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE


def change(database: str, command: str) -> None:
    connection = sqlite3.connect(database)
    connection.execute(command)
    connection.commit()
    connection.close()


def test_a_sound_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "verify", "--db", database_in(tmp_path)]) == EXIT_FINE

    shown = capsys.readouterr().out
    assert "6 configurations, 0 problems" in shown
    assert "2 of 2 foreign hashes verified" in shown


def test_a_column_that_was_changed_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = database_in(tmp_path)
    change(database, "UPDATE configuration SET op = 'x'")

    assert run(["db", "verify", "--db", database, "--json"]) == EXIT_FINDINGS

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/db-verify/1"
    assert len(document["faults"]) == 6


def test_a_hash_that_no_rule_makes_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = database_in(tmp_path)
    change(database, """UPDATE configuration SET knowledge = replace(knowledge, '"hash":"', '"hash":"0')""")

    assert run(["db", "verify", "--db", database]) == EXIT_FINDINGS

    shown = capsys.readouterr().out
    assert "0 of 2 foreign hashes verified" in shown
    assert "no known rule reproduces the hash 0" in shown
