from pathlib import Path

import pytest

from tests.memory.logs import log_in
from torchstone.errors import InputError
from torchstone.memory.read_log import parse_log
from torchstone.workflows.memory import (
    CompareRequest,
    LastRunRequest,
    LogRequest,
    ReportRequest,
    ScriptRequest,
    compare_memory,
    cut_last_run,
    parse_memory,
    read_memory,
    read_op,
    report_memory,
    run_memory,
    warnings_of,
)


def test_a_log_is_read_in_one_call(tmp_path: Path) -> None:
    log, truth = log_in(tmp_path)

    study = read_memory(LogRequest(source=str(log)))

    assert len(study.timeline.ops) == len(truth.rows)
    assert warnings_of(study) == ()
    with pytest.raises(InputError, match=rf"--op 99999 is not in the log: it has the ops 0 to {len(truth.rows) - 1}"):
        read_op(LogRequest(source=str(log)), 99_999)


def test_documents_and_page_are_written_and_read_again(tmp_path: Path) -> None:
    log, _ = log_in(tmp_path)
    request = ReportRequest(source=str(log), directory=tmp_path / "out", name="net")

    parsed = parse_memory(request)
    folder = report_memory(ReportRequest(source=str(tmp_path / "out")))

    assert parsed.folder == folder
    assert folder.page == tmp_path / "out" / "net_report.html"
    assert folder.page.is_file()
    assert read_memory(LogRequest(source=str(tmp_path / "out"))).timeline == parsed.study.timeline


def test_the_growth_of_a_peak_is_a_line(tmp_path: Path) -> None:
    logs = [log_in(tmp_path, seed=seed, name=f"{seed}.log") for seed in (3, 8)]
    small, large = sorted(logs, key=lambda one: one[1].peak("DRAM"))

    result = compare_memory(CompareRequest(sources=(str(small[0]), str(large[0])), max_growth=1.0))

    assert any(line.startswith("DRAM peak grew from ") for line in result.growth)
    assert compare_memory(CompareRequest(sources=(str(small[0]), str(large[0])))).growth == ()


def test_a_script_without_runtime_lines_has_no_page_and_says_why(tmp_path: Path) -> None:
    script = tmp_path / "net.py"
    script.write_text("raise SystemExit(3)\n", encoding="utf-8")

    report = run_memory(ScriptRequest(script=script, directory=tmp_path / "out"))

    assert (report.exit_code, report.page) == (3, None)
    assert report.problems


def test_a_long_log_is_cut_to_its_last_passes(tmp_path: Path) -> None:
    log, _ = log_in(tmp_path, passes=4)

    short = cut_last_run(LastRunRequest(log=log))

    assert short.path == tmp_path / "my_net_last_run.log"
    assert parse_log(short.path).passes == 2
    with pytest.raises(InputError, match="already exists; give --force"):
        cut_last_run(LastRunRequest(log=log))


def test_documents_with_a_row_for_each_op_of_a_huge_log_are_written_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchstone.workflows.memory.MOST_DOCUMENTED_OPS", 10)
    log, _ = log_in(tmp_path)

    small = report_memory(ReportRequest(source=str(log), directory=tmp_path / "small"))
    asked = parse_memory(ReportRequest(source=str(small.path), directory=tmp_path / "asked")).folder

    assert small.page.exists()
    assert small.registry.exists()
    assert not small.memory.exists()
    assert asked.memory.exists()
    assert asked.operations.exists()
