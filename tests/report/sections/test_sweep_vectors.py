from pathlib import Path

from tests.sweep.builders import result, run
from torchstone.record.check import Outcome
from torchstone.record.codec import save
from torchstone.record.vector import SweepHistory
from torchstone.report.section import ReportFolder
from torchstone.report.sections import sweep, sweep_vectors


def test_every_vector_has_its_history_and_its_last_numbers(tmp_path: Path) -> None:
    runs = (
        run("1", result("a", Outcome.WRONG, verdict={"pcc": 0.5, "max_ulp": "inf"})),
        run("2", result("a", verdict={"pcc": 1.0, "max_ulp": 2.0})),
    )
    save(tmp_path / sweep.FILE, SweepHistory(runs=runs, texts={"a": "self=float32[2]"}))

    view = sweep_vectors.build(ReportFolder(tmp_path))
    columns = {one.name: list(one.values) for one in view.tables[0].columns}

    assert (columns["1"], columns["2"]) == (["failed"], ["passed"])
    assert (columns["pcc"], columns["ulp"], columns["call"]) == ([1.0], [2.0], ["self=float32[2]"])
    assert columns["rate"] == [0.5]


def test_older_runs_that_are_not_shown_are_counted(tmp_path: Path) -> None:
    runs = tuple(run(f"r{number}", result("a")) for number in range(sweep_vectors.MOST_RUNS + 3))
    save(tmp_path / sweep.FILE, SweepHistory(runs=runs))

    assert sweep_vectors.build(ReportFolder(tmp_path)).notes == ("3 older runs are not shown",)
