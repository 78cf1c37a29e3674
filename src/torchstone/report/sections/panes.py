"""The module trees of two results next to each other: the same rows on both sides, so that they move together."""

from collections.abc import Sequence

from torchstone.record import codec
from torchstone.record.diff import Change, FolderDiff, ModuleDiff
from torchstone.report.section import Column, ReportFolder, SectionView, Shown, Table
from torchstone.report.sections.diff import FILE

NAME = "panes"
_SIDES = ("before", "after")


def build(folder: ReportFolder) -> SectionView | None:
    """The view of both trees; None where the structure was not compared."""
    found = codec.load(folder.path / FILE, FolderDiff)
    if not found.modules:
        return None
    return SectionView(
        name=NAME,
        title="Side by side",
        document={"sides": list(found.sides)},  # the modules are in the section of differences
        tables=(_rows(found.modules),),
        notes=("Live memory is that of the whole model while a module runs; it alone does not mark one as changed.",),
        settings={
            "sides": list(found.sides),
            "models": list(found.models),
            "priced": "cost" in found.compared,
            "checked": any(status is not None for one in found.modules for status in one.statuses),
            "golden": "golden data" in found.compared,
        },
        script="panes.js",
    )


def _rows(modules: Sequence[ModuleDiff]) -> Table:
    """One row for each path, below the nearest path above it that a side has."""
    number = {one.path: row for row, one in enumerate(modules)}
    parents = [_parent(one.path, number) for one in modules]
    columns = [
        Column(name="parent", values=parents),
        Column(name="module", values=list(range(len(modules)))),
        Column(name="members", values=[0] * len(modules)),
        Column(name="name", values=[one.path.rpartition(".")[2] for one in modules]),
        Column(name="change", values=[one.change.value for one in modules]),
        Column(name="tensors", values=[one.tensors for one in modules]),
    ]
    for side, word in enumerate(_SIDES):
        absent = Change.ADDED if side == 0 else Change.REMOVED
        columns += [
            Column(name=f"absent_{word}", values=[int(one.change is absent) for one in modules]),
            Column(name=f"class_path_{word}", values=[one.classes[side] or "" for one in modules]),
            Column(name=f"class_{word}", values=[(one.classes[side] or "").rpartition(".")[2] for one in modules]),
            Column(name=f"shapes_{word}", values=[one.shapes[side] or "" for one in modules]),
            Column(name=f"status_{word}", values=[one.statuses[side] or "" for one in modules], shown=Shown.STATUS),
            _numbers(f"parameters_{word}", [one.parameters[side] for one in modules], Shown.COUNT),
            _numbers(f"flops_{word}", [one.flops[side] for one in modules], Shown.COUNT),
            _numbers(f"moved_{word}", [one.moved_bytes[side] for one in modules], Shown.BYTES),
            _numbers(f"peak_{word}", [one.peak_bytes[side] for one in modules], Shown.BYTES),
        ]
    return Table(name=NAME, columns=tuple(columns))


def _parent(path: str, number: dict[str, int]) -> int:
    """The row of the nearest module above; a removed one may have lost its parent. -1 for the model itself."""
    above = path
    while above:
        above = above.rpartition(".")[0]
        if above in number:
            return number[above]
    return -1


def _numbers(name: str, values: Sequence[int | None], shown: Shown) -> Column:
    return Column(name=name, values=values, shown=shown)
