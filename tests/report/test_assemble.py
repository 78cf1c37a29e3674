from pathlib import Path

from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.report.page import assemble
from torchstone.report.render import SECTIONS
from torchstone.report.section import ModuleColumn, ReportFolder, Section, SectionView, Shown


def extra(folder: ReportFolder) -> SectionView:
    values = list(range(len(folder.trace.modules)))
    column = ModuleColumn(name="extra", title="Extra", values=values, shown=Shown.COUNT)
    return SectionView(name="extra", title="Extra", document={"n": len(values)}, module_columns=(column,))


EXTRA = Section(name="extra", files=("trace.json", "*_extra.json"), build=extra)


def test_only_sections_whose_files_are_there_are_built(tmp_path: Path) -> None:
    folder = folder_of(transformer(2), tmp_path)
    without = assemble(ReportFolder(folder), (*SECTIONS, EXTRA))
    (folder / "net_extra.json").write_text("{}")
    with_it = assemble(ReportFolder(folder), (*SECTIONS, EXTRA))

    assert "extra" not in [view.name for view in without.sections]
    assert [view.name for view in with_it.sections][-1] == "extra"


def test_columns_of_all_sections_are_spread_over_the_tree(tmp_path: Path) -> None:
    folder = folder_of(transformer(2), tmp_path)
    (folder / "net_extra.json").write_text("{}")
    report = assemble(ReportFolder(folder), (*SECTIONS, EXTRA))

    assert report.module_table is not None
    names = [column.name for column in report.module_table.columns]
    assert "extra" in names
    assert names[-2:] == ["outputs", "inputs"], "long texts last"
    assert report.module_table.rows == len(ReportFolder(folder).trace.modules) + 1, "one row for the run of layers"


def test_a_folder_without_a_trace_is_named_after_itself(tmp_path: Path) -> None:
    folder = tmp_path / "my-run"
    folder.mkdir()
    (folder / "data.json").write_text("{}")
    alone = Section(
        name="alone", files=("data.json",), build=lambda _: SectionView(name="alone", title="Alone", document={})
    )
    report = assemble(ReportFolder(folder), (alone,))

    assert (report.title, report.failed, report.module_table) == ("my-run", False, None)
