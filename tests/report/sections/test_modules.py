from pathlib import Path

from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.record.trace import Trace
from torchstone.report.section import ReportFolder, SectionView
from torchstone.report.sections.modules import build


def section(trace: Trace, path: Path, *, source: bool = True) -> SectionView:
    return build(ReportFolder(folder_of(trace, path), source=source))


def column(view: SectionView, name: str) -> list[object]:
    return list(next(column.values for column in view.tables[0].columns if column.name == name))


def test_a_run_of_layers_is_named_by_its_first_and_last(tmp_path: Path) -> None:
    view = section(transformer(4), tmp_path)

    assert column(view, "name")[4] == "0 … 3"
    assert column(view, "members")[4] == 4
    assert column(view, "class")[4] == "DecoderLayer"


def test_the_status_column_appears_when_there_is_something_to_tell(tmp_path: Path) -> None:
    fine = section(transformer(2), tmp_path / "fine")
    failed = section(transformer(2, fails_in=1), tmp_path / "failed")

    assert "status" not in [one.name for one in fine.module_columns]
    statuses = next(one.values for one in failed.module_columns if one.name == "status")
    assert {*statuses} == {"ran", "failed", "never called"}


def test_op_calls_of_the_root_are_all_op_calls(tmp_path: Path) -> None:
    trace = transformer(3)
    ops = next(one.values for one in section(trace, tmp_path).module_columns if one.name == "ops")

    assert ops[0] == len(trace.ops)


def test_without_source_no_file_is_named(tmp_path: Path) -> None:
    assert "/models/net.py:10" in column(section(transformer(1), tmp_path), "source")
    assert {*column(section(transformer(1), tmp_path, source=False), "source")} == {""}
