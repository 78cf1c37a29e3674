import json
from pathlib import Path

import pytest

from tests.cli.sweeps import vectors_in
from tests.sweep.builders import call, mm, result, tensor, vector
from tests.sweep.builders import run as run_of
from torchstone.cli.main import run
from torchstone.errors import EXIT_FINDINGS
from torchstone.record.vector import SweepPlan
from torchstone.sweep.folder import new_run

LINEAR = call("aten.linear.default", input=tensor(2, 3), weight=tensor(4, 3), bias=None)


def test_what_a_sweep_ran_is_held_against_what_was_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    vectors_in(Path("sweep"), mm())
    vectors = (vector(mm()), vector(LINEAR))
    made = new_run(Path("sweep"), SweepPlan(run=run_of("r1"), vectors=vectors))
    with made.journal() as journal:
        for one in vectors:
            journal.keep(one.id, result(one.id))

    assert run(["sweep", "retrace", "--json"]) == EXIT_FINDINGS

    document = json.loads(capsys.readouterr().out)
    assert document["counts"] == {"match": 1, "diff": 0, "missing": 1, "not told": 0}
