"""The module tree."""

from collections.abc import Sequence

from torchstone.record.trace import Trace
from torchstone.report.section import (
    FOLD,
    Column,
    ModuleColumn,
    ReportFolder,
    RollUp,
    SectionView,
    Shown,
    Table,
    TreeLayout,
    lay_out_tree,
)
from torchstone.report.view.modules import ModuleRow, attributes_text, module_rows, show_specs
from torchstone.report.view.overview import module_document

NAME = "modules"

RAN, FAILED, NEVER_CALLED, CONTAINER = "ran", "failed", "never called", "container"


def build(folder: ReportFolder) -> SectionView:
    """The view of the tree; other sections add columns to it."""
    trace = folder.trace
    rows = module_rows(trace, folder.folds)
    layout = module_layout(folder)
    return SectionView(
        name=NAME,
        title="Modules",
        document={"modules": [module_document(row) for row in rows]},
        tables=(_tree_table(trace, rows, layout, source=folder.source),),
        module_columns=_columns(trace, rows),
        script="modules.js",
    )


def module_layout(folder: ReportFolder) -> TreeLayout:
    """The rows of the tree."""
    return lay_out_tree([module.parent for module in folder.trace.modules], folder.folds)


def _tree_table(trace: Trace, rows: Sequence[ModuleRow], layout: TreeLayout, *, source: bool) -> Table:
    first = [
        members[0] if module == FOLD else module for module, members in zip(layout.modules, layout.members, strict=True)
    ]
    names = [
        _fold_name(rows, members) if members else rows[module].name
        for module, members in zip(first, layout.members, strict=True)
    ]
    where = {name: f"{found.file}:{found.first_line}" for name, found in trace.sources.items()} if source else {}
    classes = [rows[module].class_path for module in first]
    return Table(
        name="modules",
        columns=(
            Column(name="parent", values=layout.parents),
            Column(name="module", values=layout.modules),
            Column(name="members", values=[len(members) for members in layout.members]),
            Column(name="name", values=names),
            Column(name="class", values=[rows[module].class_name for module in first]),
            Column(name="class_path", values=classes),
            Column(name="attributes", values=[attributes_text(trace, module) for module in first]),
            Column(name="source", values=[where.get(name, "") for name in classes]),
            Column(name="first_call", values=[rows[module].first_call for module in first]),
        ),
    )


def _fold_name(rows: Sequence[ModuleRow], members: Sequence[int]) -> str:
    return f"{rows[members[0]].name} … {rows[members[-1]].name}"


def _columns(trace: Trace, rows: Sequence[ModuleRow]) -> tuple[ModuleColumn, ...]:
    ops = _op_calls(trace)
    statuses = [_status(row) for row in rows]
    status_columns = (
        [_column("status", "Status", statuses, Shown.STATUS, RollUp.WORST)]
        if {FAILED, NEVER_CALLED} & {*statuses}
        else []
    )
    return (
        *status_columns,
        ModuleColumn(
            name="parameters",
            title="Parameters",
            values=[row.parameters for row in rows],
            shown=Shown.COUNT,
            roll_up=RollUp.SUM,
            bar=True,
        ),
        _column("calls", "Calls", [row.calls for row in rows], Shown.COUNT, RollUp.SUM),
        _column("ops", "Op calls", ops, Shown.COUNT, RollUp.SUM),
        _column("outputs", "Outputs", [show_specs(row.outputs) for row in rows], Shown.TEXT, RollUp.SAME),
        _column("inputs", "Inputs", [show_specs(row.inputs) for row in rows], Shown.TEXT, RollUp.SAME),
        _column("weights", "Weights", [row.parameter_bytes for row in rows], Shown.BYTES, RollUp.SUM),
    )


def _op_calls(trace: Trace) -> list[int]:
    """The op calls of each module and everything below it; a list that is never called itself counts its members'."""
    counts = [0] * len(trace.modules)
    own = {row: sum(count for _, count in called) for row, called in trace.own_signatures.items()}
    for module, row in zip(trace.call_origins.modules, trace.call_origins.rows, strict=True):
        counts[module] += own.get(row, 0)
    for index in range(len(counts) - 1, 0, -1):
        counts[trace.modules[index].parent] += counts[index]
    return counts


def _column(name: str, title: str, values: list[int] | list[str], shown: Shown, roll_up: RollUp) -> ModuleColumn:
    return ModuleColumn(name=name, title=title, values=values, shown=shown, roll_up=roll_up)


def _status(row: ModuleRow) -> str:
    if row.failed:
        return FAILED
    if row.calls:
        return RAN
    return CONTAINER if row.container else NEVER_CALLED
