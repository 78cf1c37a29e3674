from pathlib import Path

from tests.memory.timelines import study_of
from torchstone.memory.compare import compare
from torchstone.record.codec import save
from torchstone.report.section import ReportFolder, SectionView, Tone
from torchstone.report.sections.memory_comparison import FILE, build


def view_of(tmp_path: Path, first: int, second: int) -> SectionView:
    save(tmp_path / FILE, compare(study_of(first)[0], study_of(second)[0]))
    return build(ReportFolder(tmp_path))


def test_ops_of_both_runs_stand_in_one_table(tmp_path: Path) -> None:
    view = view_of(tmp_path, 3, 8)

    rows = view.tables[0]
    counts = view.document
    assert rows.rows == counts["same"] + counts["removed"] + counts["added"]
    columns = {column.name: list(column.values) for column in rows.columns}
    assert columns["second_op"].count(None) == counts["removed"]
    assert columns["first_op"].count(None) == counts["added"]


def test_a_peak_that_grew_is_bad(tmp_path: Path) -> None:
    tones = {view_of(tmp_path, *pair).cards[0].tone for pair in ((3, 8), (8, 3))}

    assert tones == {Tone.BAD, Tone.GOOD}


def test_equal_runs_have_no_differences(tmp_path: Path) -> None:
    view = view_of(tmp_path, 3, 3)

    assert view.tables[1].rows == 0
    assert "the op sequences are identical" in view.cards[-1].detail
