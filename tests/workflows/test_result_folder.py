from pathlib import Path

import pytest

from tests.report.traces import transformer
from torchstone.cli.options import Session
from torchstone.cli.progress import TerminalProgress
from torchstone.errors import InputError
from torchstone.record.codec import load
from torchstone.record.trace import Trace
from torchstone.record.unique import UniqueModules, unique_modules
from torchstone.workflows.result_folder import write_trace, writing_to

WRITTEN = {"trace.json", "unique_modules.json", "report.html", "report.json"}


def test_the_folder_holds_the_trace_its_unique_modules_and_the_report(tmp_path: Path) -> None:
    trace = transformer(2)
    write_trace(tmp_path / "new" / "out", trace)

    assert {path.name for path in (tmp_path / "new" / "out").iterdir()} == WRITTEN
    assert load(tmp_path / "new" / "out" / "trace.json", Trace) == trace
    assert load(tmp_path / "new" / "out" / "unique_modules.json", UniqueModules) == unique_modules(trace)


def test_what_was_written_is_said_on_stderr_with_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace(tmp_path, transformer(1), TerminalProgress(Session()))

    printed = capsys.readouterr()
    assert printed.out == ""
    assert all(f"wrote {tmp_path / name}" in printed.err for name in WRITTEN - {"report.json"})
    assert f"next: torchstone serve {tmp_path}" in printed.err


def test_quiet_is_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(tmp_path, transformer(1), TerminalProgress(Session(quiet=True)))

    assert capsys.readouterr().err == ""


def test_a_second_run_replaces_the_first(tmp_path: Path) -> None:
    write_trace(tmp_path, transformer(1))
    write_trace(tmp_path, transformer(2))

    assert load(tmp_path / "trace.json", Trace) == transformer(2)
    assert {path.name for path in tmp_path.iterdir()} == WRITTEN


def test_a_folder_that_cannot_be_made_is_wrong_input_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(InputError, match=r"^cannot write to .*out: .*; choose another --dir$"):
        write_trace(tmp_path / "file" / "out", transformer(1))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_option_behind_an_unwritable_file_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"^cannot write to .*a: .*; choose another --out$"),
        writing_to(tmp_path / "missing" / "a", "--out"),
    ):
        (tmp_path / "missing" / "a").write_text("")
