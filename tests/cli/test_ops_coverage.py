import json
from pathlib import Path

import pytest

from tests.cli.databases import database_in
from tests.sweep.builders import result
from tests.sweep.builders import run as sweep
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.record.check import Outcome
from torchstone.store.database import Store
from torchstone.store.rows import Query
from torchstone.store.sweeps import add_sweep


def swept(database: str, *, failing: str = "") -> None:
    """Every configuration of the text trace was run; those of one op failed."""
    with Store.open(database) as store:
        results = [
            result(one.key, Outcome.WRONG if one.configuration.op == failing else Outcome.PASSED, configuration=one.key)
            for one in store.configurations(Query(model="albert"))
        ]
        add_sweep(store, sweep("r1", *results, backend="inductor"))


def test_a_model_that_is_covered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = database_in(tmp_path)
    swept(database)

    assert run(["ops", "coverage", "albert", "--backend", "inductor", "--db", database]) == EXIT_FINE

    assert "albert on inductor: 100 % covered, 79 of 79 calls" in capsys.readouterr().out


def test_what_fails_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = database_in(tmp_path)
    swept(database, failing="aten.addmm.default")

    assert run(["ops", "coverage", "albert", "--backend", "inductor", "--db", database, "--json"]) == EXIT_FINDINGS

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/op-coverage/1"
    assert (document["calls"], document["passed_calls"], document["failed_calls"]) == (79, 30, 49)
    assert document["ops"][0]["op"] == "aten.addmm.default"


def test_a_backend_that_nothing_ran_on_names_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "coverage", "albert", "--backend", "eager", "--db", database_in(tmp_path)]) == EXIT_FINDINGS

    shown = capsys.readouterr()
    assert "0 % covered" in shown.out
    assert "torchstone sweep run --backend eager" in shown.err


def test_an_unknown_model_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "coverage", "gpt", "--backend", "eager", "--db", database_in(tmp_path)]) == EXIT_BAD_INPUT

    assert "no model contains 'gpt'" in capsys.readouterr().err
