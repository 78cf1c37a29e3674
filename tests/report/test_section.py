from pathlib import Path

from tests.report.folders import folder_of
from tests.report.traces import one_op
from torchstone.report.section import ReportFolder


def test_a_folder_knows_its_files_by_name_and_by_pattern(tmp_path: Path) -> None:
    (tmp_path / "net_memory.json").write_text("{}")
    folder = ReportFolder(tmp_path)

    assert folder.has("net_memory.json")
    assert folder.has("*_memory.json")
    assert not folder.has("*_cost.json")
    assert not folder.has("trace.json")


def test_the_trace_is_read_once(tmp_path: Path) -> None:
    folder = ReportFolder(folder_of(one_op(), tmp_path))

    assert folder.trace is folder.trace
