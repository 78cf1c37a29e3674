from pathlib import Path

from tests.report.folders import folder_of
from tests.report.traces import empty_model, transformer
from torchstone.report.section import ReportFolder
from torchstone.report.sections.operators import build


def test_the_tables_of_operators_signatures_and_uses_add_up(tmp_path: Path) -> None:
    trace = transformer(3)
    view = build(ReportFolder(folder_of(trace, tmp_path)))
    calls = [
        sum(value for value in column.values if isinstance(value, int))
        for table in view.tables
        for column in table.columns
        if column.name == "calls"
    ]

    assert calls == [len(trace.ops)] * 3


def test_a_model_without_ops_says_so(tmp_path: Path) -> None:
    view = build(ReportFolder(folder_of(empty_model(), tmp_path)))

    assert view.tables[0].rows == 0
    assert view.tables[0].empty == "No op was called."
