from pathlib import Path

import pytest

from tests.record.test_cost import sweep_of
from torchstone.errors import UnreadableFileError
from torchstone.record.codec import save
from torchstone.record.cost import CostSweep
from torchstone.report.page import assemble
from torchstone.report.render import SECTIONS
from torchstone.report.section import ReportFolder, SectionView
from torchstone.report.sections.cost_sweep import FILE, build


def view_of(folder: Path, sweep: CostSweep) -> SectionView:
    save(folder / FILE, sweep)
    return build(ReportFolder(folder))


def test_every_size_is_a_row_and_a_bar(tmp_path: Path) -> None:
    view = view_of(tmp_path, sweep_of(128, 256, 512))

    columns = {column.name: list(column.values) for column in view.tables[0].columns}
    assert columns["value"] == [128, 256, 512]
    assert columns["flops"] == [128**2, 256**2, 512**2]
    assert columns["fused"] == [3 * 128, 3 * 256, 3 * 512]
    assert {chart.x_column for chart in view.charts} == {"value"}
    assert [chart.tab for chart in view.charts] == ["FLOPs", "Bytes moved", "Peak memory"]


def test_times_are_shown_where_they_were_predicted_and_called_so(tmp_path: Path) -> None:
    view = view_of(tmp_path, sweep_of(1000, 2000, hardware="A device"))

    assert view.charts[-1].tab == "Predicted time"
    assert view.cards[-1].value == "1.00 s to 2.00 s"
    assert view.notes == ("Times are predicted with the roofline model of A device, not measured",)


def test_the_report_is_named_after_the_model(tmp_path: Path) -> None:
    save(tmp_path / FILE, sweep_of(1, 2))

    assert assemble(ReportFolder(tmp_path), SECTIONS).title == "tiny:llama"


def test_a_sweep_over_no_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="contains no sizes"):
        view_of(tmp_path, sweep_of())
