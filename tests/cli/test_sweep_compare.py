import json
from pathlib import Path

import pytest

from tests.cli.sweeps import finished_run
from tests.sweep.builders import result, timing
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.record.check import Outcome
from torchstone.store.database import Store
from torchstone.store.sweeps import add_sweep
from torchstone.sweep.folder import runs_in


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finished_run(Path("sweep"), "r1", result("k1-aa"), result("k1-bb", timing=timing(1.0, 0.01)))
    finished_run(Path("sweep"), "r2", result("k1-aa", Outcome.WRONG), result("k1-bb", timing=timing(1.5, 0.01)))


def test_regressions_and_slower_vectors_are_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "compare", "r1", "r2"]) == EXIT_FINDINGS

    shown = capsys.readouterr().out
    assert "1 regressions" in shown
    assert "k1-aa  aten.mm.default  passed -> wrong" in shown
    assert "1.50x" in shown


def test_the_other_way_round_everything_got_better(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "compare", "r2", "r1", "--json"]) == EXIT_FINE

    document = json.loads(capsys.readouterr().out)
    assert (document["is_worse"], len(document["fixed"]), len(document["faster"])) == (False, 1, 1)


def test_a_run_can_be_named_by_its_folder() -> None:
    assert run(["sweep", "compare", "sweep/runs/r1", "last", "--dir", "sweep"]) == EXIT_FINDINGS


def test_a_run_that_is_not_there_is_told_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "compare", "r1", "x9"]) == EXIT_BAD_INPUT
    assert "r2" in capsys.readouterr().err


def test_runs_that_a_database_keeps_are_compared_there(capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open("kept.db") as store:
        for one in runs_in(Path("sweep")):
            add_sweep(store, one.run())

    assert run(["sweep", "compare", "r1", "last", "--dir", "elsewhere", "--db", "kept.db"]) == EXIT_FINDINGS
    assert "1 regressions" in capsys.readouterr().out
    assert run(["sweep", "compare", "r", "x9", "--db", "kept.db"]) == EXIT_BAD_INPUT
    assert "2 runs in kept.db begin with 'r'; the newest are r1, r2" in capsys.readouterr().err
