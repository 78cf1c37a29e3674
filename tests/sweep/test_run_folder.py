from pathlib import Path

import pytest

from tests.sweep.builders import mm, result, run, vector
from torchstone.errors import UnreadableFileError
from torchstone.record.check import Outcome
from torchstone.record.vector import SweepPlan
from torchstone.sweep.folder import RunFolder, find_run, new_run, new_run_name, runs_in, unfinished


def begun(folder: Path, name: str, *vectors: str) -> RunFolder:
    plan = SweepPlan(run=run(name, finished=False), vectors=tuple(vector(mm(), id=one) for one in vectors))
    return new_run(folder, plan)


def test_an_interrupted_run_knows_what_it_did(tmp_path: Path) -> None:
    folder = begun(tmp_path, "r1", "a", "b")
    with folder.journal() as journal:
        journal.keep("b", result("b", Outcome.WRONG))

    found = folder.run()

    assert not found.finished
    assert [one.id for one in found.results] == ["b"]
    assert [one.name for one in unfinished(tmp_path)] == ["r1"]


def test_results_stand_in_the_order_of_the_plan_and_the_last_word_counts(tmp_path: Path) -> None:
    folder = begun(tmp_path, "r1", "a", "b")
    with folder.journal() as journal:
        for one in (result("b"), result("a", Outcome.CRASHED), result("a")):
            journal.keep(one.id, one)

    folder.finish(folder.gathered(finished=True, elapsed_s=2.0))

    assert [(one.id, one.outcome) for one in folder.run().results] == [("a", Outcome.PASSED), ("b", Outcome.PASSED)]
    assert list(unfinished(tmp_path)) == []


def test_a_run_is_found_by_the_beginning_of_its_name(tmp_path: Path) -> None:
    for name in ("20260101-aa", "20260102-bb"):
        begun(tmp_path, name)

    assert [one.name for one in runs_in(tmp_path)] == ["20260101-aa", "20260102-bb"]
    assert find_run(tmp_path, "last").name == "20260102-bb"
    assert find_run(tmp_path, "20260101").name == "20260101-aa"


@pytest.mark.parametrize(("name", "what"), [("1999", "no run"), ("2026", "2 runs")])
def test_a_name_that_means_none_or_several_is_refused_with_those_there_are(
    tmp_path: Path, name: str, what: str
) -> None:
    begun(tmp_path, "20260101-aa")
    begun(tmp_path, "20260102-bb")

    with pytest.raises(UnreadableFileError, match=rf"{what}.*20260102-bb"):
        find_run(tmp_path, name)


def test_names_of_runs_are_never_the_same() -> None:
    assert len({new_run_name() for _ in range(100)}) == 100
