"""The first environment in which a vector fails; links to this interpreter stand for environments."""

import sys
from pathlib import Path

import pytest

from tests.cli.sweeps import unary, vectors_in
from tests.sweep.builders import mm, result, run
from torchstone.errors import InputError
from torchstone.record.check import Outcome
from torchstone.workflows import sweep_bisect
from torchstone.workflows.sweep_bisect import BisectRequest, bisect_sweep
from torchstone.workflows.sweep_run import RunRequest


def test_a_vector_that_is_not_one_vector_is_refused(tmp_path: Path) -> None:
    vectors_in(tmp_path, mm(), unary("aten.neg.default"))
    pythons = (sys.executable, sys.executable)

    with pytest.raises(InputError, match="no vector begin"):
        bisect_sweep(BisectRequest(vector_id="zz", backend="eager", pythons=pythons, folder=tmp_path))
    with pytest.raises(InputError, match="two or more --python"):
        bisect_sweep(BisectRequest(vector_id=mm().key, backend="eager", pythons=pythons[:1], folder=tmp_path))


def test_the_pair_that_is_named_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors_in(tmp_path, mm())
    ends = dict(zip("abcdef", (*[Outcome.PASSED] * 2, Outcome.NOT_RUN, *[Outcome.WRONG] * 3), strict=True))
    tried = []

    def run_sweep(request: RunRequest) -> object:
        tried.append(request.python)
        return run("r", result(mm().key, ends[request.python]))

    monkeypatch.setattr(sweep_bisect, "run_sweep", run_sweep)
    found = bisect_sweep(BisectRequest(vector_id=mm().key, backend="eager", pythons="abcdef", folder=tmp_path))

    assert (found.last_good, found.first_bad) == ("b", "d")
    assert "those between them could not be tried" in found.verdict
    assert {"b", "d"} <= set(tried)
    assert len(tried) == len(set(tried))
