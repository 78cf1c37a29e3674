import json
from pathlib import Path

import pytest

from tests.cli.sweeps import finished_run
from tests.sweep.builders import result
from tests.sweep.builders import run as run_of
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT
from torchstone.record.check import Outcome
from torchstone.store.database import Store
from torchstone.store.sweeps import add_sweep

REPORT = ["sweep", "report", "--dir", "out"]


@pytest.fixture(autouse=True)
def _two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finished_run(Path("out"), "20260101-a", result("k1-aa"), result("k1-bb", Outcome.WRONG, detail="PCC 0.5"))
    finished_run(Path("out"), "20260102-b", result("k1-aa", Outcome.CRASHED, detail="SIGFPE"), backend="inductor")


def test_the_newest_run_is_shown_and_backends_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(REPORT) == 0

    shown = capsys.readouterr().out
    assert "run 20260102-b on inductor" in shown
    assert "SIGFPE" in shown
    assert "1 of 2" in shown


def test_an_older_run_and_a_single_vector_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*REPORT, "20260101"]) == 0
    assert "PCC 0.5" not in capsys.readouterr().out  # a cause is told without its numbers
    assert run([*REPORT, "--vector-id", "aa"]) == 0
    assert capsys.readouterr().out.count("20260") == 2


def test_the_page_shows_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*REPORT, "--html", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/sweep_history/1"
    twin = json.loads(Path("out/report.json").read_bytes())
    assert [one["run"] for one in twin["sections"]["sweep"]["runs"]] == ["20260101-a", "20260102-b"]
    assert {one["id"] for one in twin["sections"]["vectors"]["vectors"]} == {"k1-aa", "k1-bb"}
    assert Path("out/report.html").stat().st_size > 10_000


def test_runs_of_a_database_are_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open("x.db") as store:
        add_sweep(store, run_of("20270101-z", result("k1-cc"), backend="xla"))

    assert run([*REPORT, "--db", "x.db"]) == 0
    assert "on xla" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["1999"], "20260102-b"), (["--vector-id", "zz"], "zz"), (["--dir", "none"], "sweep run")],
)
def test_what_is_not_there_is_told_with_what_is(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run([*REPORT, *arguments]) == EXIT_BAD_INPUT
    assert said in capsys.readouterr().err
