import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.sweeps import FAULTS, OPTION, database, unary, vectors_in
from tests.sweep.builders import mm
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.store.database import Store
from torchstone.store.sweeps import sweep_runs

RUN = ["sweep", "run", "--dir", "out", "--quiet"]
OUTCOMES = {
    "crash": "crashed",
    "hang": "timed out",
    "memory": "out of memory",
    "wrong": "wrong",
    "unsupported": "unsupported",
    "nan": "wrong",
    "compile_error": "compile error",
    "raise": "raised",
    "no_answer": "crashed",
}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_every_fault_ends_its_own_vector_with_its_own_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    vectors_in(Path("out"), mm(), unary("aten.relu.default"), *map(unary, FAULTS))
    database(Path("torchstone.db"))

    code = run(
        [*RUN, "--backend", "faulty", "--backend-option", OPTION, "--timeout", "15", "--memory-limit", "300MB",
         "--retries", "0", "--json"]
    )  # fmt: skip

    found = told(capsys)
    assert code == EXIT_FINDINGS
    wanted = {"aten.mm.default": "passed", "aten.relu.default": "passed"}
    wanted |= {op: OUTCOMES[fault] for op, fault in FAULTS.items()}
    assert {one["op"]: one["outcome"] for one in found["results"]} == wanted
    by_op = {one["op"]: one for one in found["results"]}
    assert by_op["aten.sin.default"]["signal"] == "SIGSEGV"
    assert by_op["aten.sin.default"]["status"] == "FAIL_CRASH_HANG"
    assert 15 <= by_op["aten.cos.default"]["elapsed_s"] < 150
    assert found["counts"] == {"FAIL_ASSERT_EXCEPTION": 5, "FAIL_CRASH_HANG": 4, "PASS": 2}
    assert found["schema"] == "torchstone/sweep_run/1"
    with Store.open("torchstone.db", create=False) as store:
        assert [one.run for one in sweep_runs(store)] == [found["run"]]


def test_everything_passing_is_fine_and_one_vector_can_be_picked(capsys: pytest.CaptureFixture[str]) -> None:
    vectors_in(Path("out"), mm(2, 3, 4), mm(5, 6, 7))

    assert run([*RUN, "--vector-id", mm(5, 6, 7).key[:20], "--perf", "--perf-runs", "3", "--json"]) == EXIT_FINE

    (only,) = told(capsys)["results"]
    assert (only["id"], only["status"]) == (mm(5, 6, 7).key, "PASS")
    assert only["timing"]["runs"] == 3
    assert only["verdict"]["passed"] is True


def test_a_dry_run_lists_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    vectors_in(Path("out"), mm())

    assert run([*RUN, "--dry-run"]) == EXIT_FINE
    assert mm().key[:15] in capsys.readouterr().out
    assert not Path("out/runs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--op", "aten.mm.defalt"], "aten.mm.default"),
        (["--suite", "model_trace"], "model_traced"),
        (["--vector-id", "zz"], "zz"),
        (["--backend", "no_such"], "no_such"),
        (["--backend", "faulty", "--backend-option", "fault=x"], "no fault 'x'"),
        (["--python", "/no/such/python"], "/no/such/python"),
        (["--memory-limit", "lots"], "2GiB"),
    ],
)
def test_wrong_input_is_one_sentence_with_the_way_out(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    vectors_in(Path("out"), mm())

    assert run([*RUN, *arguments]) == EXIT_BAD_INPUT
    assert said in capsys.readouterr().err


def test_nothing_to_run_is_a_failure_unless_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(RUN) == EXIT_BAD_INPUT
    assert "sweep generate" in capsys.readouterr().err
    Path("out/vectors").mkdir(parents=True)
    assert run(RUN) == EXIT_FINDINGS
    assert run([*RUN, "--allow-empty"]) == EXIT_FINE
