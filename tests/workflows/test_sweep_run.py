from pathlib import Path

import pytest

from tests.cli.sweeps import database, unary, vectors_in
from tests.sweep.builders import mm, result, run, vector
from torchstone.errors import InputError
from torchstone.record.check import Outcome
from torchstone.record.vector import SweepPlan, VectorResult
from torchstone.store.database import Store
from torchstone.store.sweeps import sweep_runs
from torchstone.sweep.folder import new_run
from torchstone.workflows.sweep_generate import GenerateRequest
from torchstone.workflows.sweep_run import RunRequest, has_failed, plan_sweep, run_sweep, sweep


def test_vectors_are_generated_and_run_in_one_call(tmp_path: Path) -> None:
    address = database(tmp_path / "x.db", mm(2, 3, 4), unary("aten.sin.default"))
    folder = tmp_path / "out"

    finished = sweep(
        GenerateRequest(all_ops=True, folder=folder, database=address), RunRequest(folder=folder, database=address)
    )

    assert (finished.finished, finished.outcomes) == (True, {"passed": 2})
    assert not has_failed(finished)
    with Store.open(address) as store:
        assert [one.run for one in sweep_runs(store)] == [finished.run]


def test_two_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give the same folder"):
        sweep(GenerateRequest(all_ops=True, folder=tmp_path), RunRequest(folder=tmp_path / "other"))


def test_each_result_is_on_disk_before_the_caller_hears_of_it(tmp_path: Path) -> None:
    vectors_in(tmp_path, mm(), unary("aten.neg.default"))
    heard: list[VectorResult] = []

    def on_result(one: VectorResult) -> None:
        (journal,) = tmp_path.glob("runs/*/results.jsonl")
        assert one.id in journal.read_text(encoding="utf-8")
        heard.append(one)

    request = RunRequest(
        folder=tmp_path,
        backend="faulty",
        backend_options={"faults": [{"fault": "wrong", "op": "aten.neg.*"}]},
        database=str(tmp_path / "x.db"),
    )
    finished = run_sweep(request, on_result=on_result)

    assert {one.op: one.outcome for one in heard} == {
        "aten.mm.default": Outcome.PASSED,
        "aten.neg.default": Outcome.WRONG,
    }
    assert has_failed(finished)


def test_what_an_interrupted_run_has_left_is_planned(tmp_path: Path) -> None:
    plan = SweepPlan(run=run("r1", finished=False), vectors=tuple(vector(mm(), id=one) for one in ("a", "b")))
    with new_run(tmp_path, plan).journal() as journal:
        journal.keep("a", result("a"))

    planned = plan_sweep(RunRequest(folder=tmp_path, resume=True))

    assert [one.id for one in planned.vectors] == ["b"]
    assert planned.interrupted is not None
    assert planned.interrupted.name == "r1"


def test_a_run_that_was_killed_before_it_began_starts_again(tmp_path: Path) -> None:
    vectors_in(tmp_path, mm())
    (tmp_path / "runs" / "20260101T000000-abcdef").mkdir(parents=True)  # killed before its plan was written

    planned = plan_sweep(RunRequest(folder=tmp_path, resume=True))

    assert planned.interrupted is None
    assert [one.op for one in planned.vectors] == ["aten.mm.default"]


def test_nothing_to_run_is_an_error_that_says_where_vectors_come_from(tmp_path: Path) -> None:
    (tmp_path / "vectors").mkdir()

    with pytest.raises(InputError, match="torchstone sweep generate"):
        run_sweep(RunRequest(folder=tmp_path))
