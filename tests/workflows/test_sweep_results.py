from pathlib import Path

import pytest

from tests.cli.sweeps import finished_run
from tests.sweep.builders import result
from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.check import Outcome
from torchstone.workflows.sweep_repro import ReproRequest, write_repro
from torchstone.workflows.sweep_results import (
    CompareRequest,
    compare_sweeps,
    read_history,
    run_in_history,
    vector_in_history,
    write_history,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    finished_run(tmp_path, "20260101-a", result("k1-aa"), result("k1-bb", Outcome.WRONG))
    finished_run(tmp_path, "20260102-b", result("k1-aa", Outcome.CRASHED), backend="inductor")
    return tmp_path


def test_two_runs_are_compared(folder: Path) -> None:
    found = compare_sweeps(CompareRequest(first="20260101", second="last", folder=folder))

    assert (found.first, found.second, found.is_worse) == ("20260101-a", "20260102-b", True)
    assert [pair.id for pair in found.regressions] == ["k1-aa"]


def test_the_history_of_a_folder_has_its_runs_and_its_vectors(folder: Path) -> None:
    history = read_history(folder)

    assert run_in_history(history).run == "20260102-b"
    assert run_in_history(history, "20260101").run == "20260101-a"
    assert [(run.run, one.outcome) for run, one in vector_in_history(history, "aa")] == [
        ("20260101-a", Outcome.PASSED),
        ("20260102-b", Outcome.CRASHED),
    ]
    with pytest.raises(UnreadableFileError, match="no run in the history begin with '1999'; the newest are"):
        run_in_history(history, "1999")
    with pytest.raises(InputError, match="several vectors begin with 'k1'"):
        vector_in_history(history, "k1")


def test_the_page_of_a_history_is_written(folder: Path) -> None:
    page = write_history(read_history(folder), folder)

    assert page == folder / "report.html"
    assert page.is_file()


def test_a_script_is_written_only_for_a_failure(folder: Path) -> None:
    with pytest.raises(InputError, match=r"no failure in .* begins with 'k1-zz'"):
        write_repro(ReproRequest(vector_id="k1-zz", folder=folder))
