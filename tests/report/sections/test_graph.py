from pathlib import Path

from tests.report.folders import folder_of
from tests.report.traces import transformer, wide_tree
from torchstone.report.section import Column, ReportFolder, SectionView
from torchstone.report.sections.graph import MAX_DRAWN, build, short_op


def column(view: SectionView, table: str, name: str) -> Column:
    found = next(one for one in view.tables if one.name == table)
    return next(one for one in found.columns if one.name == name)


def test_every_box_of_a_small_container_has_a_place(tmp_path: Path) -> None:
    view = build(ReportFolder(folder_of(transformer(3), tmp_path)))

    assert None not in column(view, "graph.boxes", "x").values
    assert len(column(view, "graph.containers", "call").values) == view.document["containers"]


def test_a_container_with_too_many_parts_is_listed(tmp_path: Path) -> None:
    view = build(ReportFolder(folder_of(wide_tree(100, MAX_DRAWN + 50), tmp_path)))
    drawings = column(view, "graph.boxes", "drawing").values
    placed = column(view, "graph.boxes", "x").values
    largest = max(drawings, key=list(drawings).count)

    assert {x for x, drawing in zip(placed, drawings, strict=True) if drawing == largest} == {None}


def test_a_box_shows_an_op_without_the_parts_that_all_share() -> None:
    assert short_op("aten.mm.default") == "mm"
    assert short_op("aten.add.Tensor") == "add.Tensor"
    assert short_op("ttnn.matmul") == "ttnn.matmul"
