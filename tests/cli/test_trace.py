import json
import os
from pathlib import Path

import pytest

from tests.capture.ttnn_standin import write_ttnn
from tests.cli.programs import torchstone
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.record.codec import load
from torchstone.record.config import OpLog
from torchstone.store.database import Store

TESTS = """
import torch

def test_good():
    torch.ones(2, 3).matmul(torch.ones(3, 4))

def test_bad():
    torch.ones(2).sin()
    assert False, "a reason"
"""

WITH_TTNN = """
import torch
import ttnn

def test_good():
    ttnn.add(ttnn.Tensor(2, 4), ttnn.Tensor(2, 4))
    ttnn.add(ttnn.Tensor(2, 4), ttnn.Tensor(2, 4))
    torch.ones(2).neg()

def test_bad():
    ttnn.relu(ttnn.Tensor(2))
    assert False, "a reason"
"""


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_net.py").write_text(TESTS, encoding="utf-8")
    return tmp_path


def ops_in(database: Path) -> set[str]:
    with Store.open(str(database), create=False) as store:
        return {summary.op for summary in store.operations()}


def test_only_what_passing_tests_called_goes_into_the_database(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["trace", "test_net.py", "--json", "--store", "raw"])

    summary = json.loads(capsys.readouterr().out)
    assert code == EXIT_FINDINGS
    assert summary["schema"] == "torchstone/trace_summary/1"
    assert summary["new"] == summary["configurations"] == 3
    assert [(one["name"], one["kept"]) for one in summary["sources"]] == [
        ("test_net.py::test_good", True),
        ("test_net.py::test_bad", False),
    ]
    assert ops_in(in_folder / "torchstone.db") == {"aten.ones.default", "aten.mm.default"}
    (raw,) = (in_folder / "raw").iterdir()
    assert len(load(raw, OpLog).sources) == 2


def test_failing_tests_count_where_asked_for(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["trace", "test_net.py::test_bad", "--keep-failing", "--db", "other.db"])

    assert code == EXIT_FINDINGS
    assert "a reason" in capsys.readouterr().out
    assert "aten.sin.default" in ops_in(in_folder / "other.db")


@pytest.mark.usefixtures("in_folder")
def test_arguments_for_a_model_are_refused_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", "tiny:bert", "--", "--epochs"]) == EXIT_BAD_INPUT
    assert "--as script" in capsys.readouterr().err


@pytest.mark.usefixtures("in_folder")
def test_a_script_that_is_not_there_is_named_and_nothing_is_written(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["trace", "train.py"]) == EXIT_BAD_INPUT
    assert "train.py" in capsys.readouterr().err
    assert not (in_folder / "torchstone.db").exists()


def test_a_trace_that_the_database_has_no_room_for_is_kept_and_can_be_added_later(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (in_folder / "train.py").write_text("import torch\ntorch.ones(2).neg()\n", encoding="utf-8")

    full = torchstone("trace", "train.py", "--store", "raw", cwd=in_folder, file_limit_bytes=40_000)

    (raw,) = (in_folder / "raw").iterdir()
    assert full.returncode == EXIT_BAD_INPUT
    assert "torchstone.db cannot be written to" in full.stderr
    assert f"add it later with `torchstone db import raw/{raw.name}`" in full.stderr
    assert full.stdout == ""
    assert run(["db", "import", f"raw/{raw.name}", "--quiet"]) == EXIT_FINE
    assert "2 configurations of 2 ops, 2 new" in capsys.readouterr().out
    assert ops_in(in_folder / "torchstone.db") == {"aten.ones.default", "aten.neg.default"}


@pytest.mark.usefixtures("in_folder")
def test_a_database_that_cannot_be_used_is_told_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    Path("no.db").write_text("this is no database, and it is long enough to be looked at" * 20, encoding="utf-8")

    assert run(["trace", "test_net.py", "--db", "no.db", "--store", "raw"]) == EXIT_BAD_INPUT
    assert "no.db" in capsys.readouterr().err
    assert not Path("raw").exists()


@pytest.fixture
def with_ttnn(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tests that use ttnn, and a ttnn for the processes that run them."""
    site = write_ttnn(in_folder / "site")
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    (in_folder / "test_ttnn.py").write_text(WITH_TTNN, encoding="utf-8")
    return in_folder


def test_operations_of_ttnn_are_recorded_by_its_own_tracer_beside_those_of_torch(
    with_ttnn: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["trace", "test_ttnn.py", "--json", "--store", "raw"])

    summary = json.loads(capsys.readouterr().out)
    assert code == EXIT_FINDINGS
    assert summary["ttnn"] == {"operations": 1, "configurations": 1, "calls": 2}
    assert summary["roles"] == {"compute": 1, "factory": 1, "ttnn": 1}
    assert [(one["name"], one["calls"]) for one in summary["sources"]] == [
        ("test_ttnn.py::test_good", 4),
        ("test_ttnn.py::test_bad", 1),
    ]
    database = with_ttnn / "torchstone.db"
    assert ops_in(database) == {"aten.ones.default", "aten.neg.default", "ttnn.add"}
    assert run(["db", "import", f"raw/{summary['run']}.ttnn", "--keep-failing", "--quiet"]) == EXIT_FINE
    assert "2 configurations of 2 ops, 1 new" in capsys.readouterr().out  # the kept files tell the same once more


def test_half_a_file_of_ttnn_is_told_and_loses_no_op_of_torch(
    with_ttnn: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STANDIN_WRITES_HALF", "1")

    code = run(["trace", "test_ttnn.py::test_good"])

    printed = capsys.readouterr()
    assert code == EXIT_FINDINGS
    assert "2 files of ttnn's tracer cannot be read, so their calls are missing" in printed.err
    assert "0 ttnn operations among them" in printed.out
    assert ops_in(with_ttnn / "torchstone.db") == {"aten.ones.default", "aten.neg.default"}


def test_a_ttnn_that_cannot_be_imported_is_told_and_loses_no_op_of_torch(
    with_ttnn: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (with_ttnn / "site" / "ttnn" / "__init__.py").write_text("raise ImportError('no libtt_metal.so')")

    code = run(["trace", "test_net.py::test_good"])

    said = capsys.readouterr()
    assert code == EXIT_FINE
    assert "note: ttnn cannot be imported (ImportError: no libtt_metal.so)" in said.err
    assert "3 calls" in said.out
    assert "ttnn" not in said.out


@pytest.mark.heavy
@pytest.mark.usefixtures("with_ttnn")
def test_ttnn_is_left_alone_where_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", "test_ttnn.py::test_good", "--no-ttnn", "--json"]) == EXIT_FINE

    document = json.loads(capsys.readouterr().out)
    assert (document["ttnn"], document["notes"], document["calls"]) == (None, [], 2)
