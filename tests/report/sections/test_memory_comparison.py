from pathlib import Path

import msgspec

from tests.memory.timelines import study_of
from torchstone.memory.compare import compare, summarize
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


def test_every_one_of_several_runs_is_on_the_page(tmp_path: Path) -> None:
    runs = [study_of(seed)[0] for seed in (3, 8, 3, 5)]
    found = [compare(runs[0], other) for other in runs[1:]]
    summaries = tuple(summarize(run) for run in runs)
    save(tmp_path / FILE, msgspec.structs.replace(found[0], others=tuple(found[1:]), runs=summaries))

    view = build(ReportFolder(tmp_path))

    assert len(view.cards) == 3
    assert view.cards[1].tone is Tone.PLAIN  # the third run is the first again
    assert len(view.charts[0].series) == 4
    listed, rows, differences = view.tables
    assert listed.rows == 4
    columns = {column.name: list(column.values) for column in rows.columns}
    assert columns["run0"] == columns["run2"] != columns["run1"]
    assert rows.rows == sum(op != -1 for op in found[0].rows.first_ops.values())
    assert len(set(differences.columns[0].values)) == 2
