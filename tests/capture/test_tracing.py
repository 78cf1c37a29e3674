from pathlib import Path

import pytest

from torchstone.capture.trace_program import TraceRequest, trace_in_child
from torchstone.errors import InputError
from torchstone.record.config import OpLog, SourceEnding, TargetKind

SCRIPT = """
import sys
from threading import Thread
import torch
from beside import factor

assert sys.argv[1:] == ["--times", "2"], sys.argv
x = torch.ones(2, requires_grad=True)
loss = x.mul(factor).sum()
thread = Thread(target=loss.backward)
thread.start()
thread.join()
print("done")
"""


def trace_script(tmp_path: Path, text: str, *arguments: str) -> OpLog:
    """What a script of this text called."""
    (tmp_path / "beside.py").write_text("factor = 2.0\n", encoding="utf-8")
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    script = str(tmp_path / "train.py")
    return trace_in_child(TraceRequest(kind=TargetKind.SCRIPT, target=script, arguments=arguments, run="1", looks=8))


def test_a_script_runs_with_its_arguments_its_folder_and_its_threads(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (source,) = trace_script(tmp_path, SCRIPT, "--times", "2").sources

    assert source.ending is SourceEnding.PASSED, source.detail
    assert source.name.endswith("train.py --times 2")
    phases = {place.phase for one in source.configurations for place in one.occurrences}
    assert len(phases) == 2
    assert capfd.readouterr().out == ""  # what the script prints is not the result


def test_a_script_that_exits_with_an_error_failed(tmp_path: Path) -> None:
    (source,) = trace_script(tmp_path, "import sys, torch\ntorch.ones(1).neg()\nsys.exit(3)\n").sources

    assert (source.ending, source.detail) == (SourceEnding.FAILED, "SystemExit: 3")
    assert source.calls == 2


def test_a_script_that_crashes_is_told_with_its_signal(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="SIGSEGV"):
        trace_script(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")


def test_a_test_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "test_none.py::test_it")

    with pytest.raises(InputError, match=r"pytest .*test_none\.py::test_it` first"):
        trace_in_child(TraceRequest(kind=TargetKind.PYTEST, target=missing, run="1", looks=8))


def test_no_room_for_temporary_files_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))

    with pytest.raises(InputError, match="set TMPDIR to another disk"):
        trace_in_child(TraceRequest(kind=TargetKind.SCRIPT, target="train.py", run="1", looks=8))
