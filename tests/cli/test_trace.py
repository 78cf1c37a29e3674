import json
from pathlib import Path

import pytest

from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS
from torchstone.record.codec import load
from torchstone.record.op_log import OpLog
from torchstone.store.database import Store

TESTS = """
import torch

def test_good():
    torch.ones(2, 3).matmul(torch.ones(3, 4))

def test_bad():
    torch.ones(2).sin()
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
