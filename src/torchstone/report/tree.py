"""The module tree with a row of its own for each run of repeated layers, and columns spread over it."""

from collections.abc import Sequence
from typing import Any

from torchstone.record.base import Record
from torchstone.report.columns import Column
from torchstone.report.folding import Fold
from torchstone.report.section import ModuleColumn, RollUp

FOLD = -1  # stands for a module number in the row of a run

_WORST_FIRST = ("failed", "crashed", "timed out", "out of memory", "ir_export_failed", "wrong", "compile error",
                "raised", "unsupported",
                "skipped", "not run", "never called", "inherited_success", "success", "passed", "ran")  # fmt: skip


class TreeLayout(Record, frozen=True, kw_only=True):
    """Rows in pre-order: one per module, and one before each run of equal siblings, which is their parent."""

    modules: tuple[int, ...]  # FOLD for the row of a run
    parents: tuple[int, ...]  # a row of this layout
    members: tuple[tuple[int, ...], ...]  # module numbers of a run; empty for a module


def lay_out_tree(parents: Sequence[int], runs: Sequence[Fold]) -> TreeLayout:
    """Put a row before each run."""
    starts = {fold.first: fold for fold in runs}
    fold_of = {member: fold.first for fold in runs for member in fold.members}
    row_of: dict[int, int] = {}
    fold_row_of: dict[int, int] = {}
    modules: list[int] = []
    tree_parents: list[int] = []
    members: list[tuple[int, ...]] = []
    for index, parent in enumerate(parents):
        above = row_of.get(parent, -1)
        if index in starts:
            fold_row_of[index] = len(modules)
            modules.append(FOLD)
            tree_parents.append(above)
            members.append(starts[index].members)
        row_of[index] = len(modules)
        modules.append(index)
        tree_parents.append(fold_row_of[fold_of[index]] if index in fold_of else above)
        members.append(())
    return TreeLayout(modules=tuple(modules), parents=tuple(tree_parents), members=tuple(members))


def spread(column: ModuleColumn, layout: TreeLayout) -> Column:
    """A module column with a value for each row of the tree."""
    values: Sequence[Any] = column.values
    spread_values = [
        values[module] if module != FOLD else _rolled_up([values[member] for member in members], column.roll_up)
        for module, members in zip(layout.modules, layout.members, strict=True)
    ]
    return Column(name=column.name, values=spread_values, title=column.title, shown=column.shown)


def _rolled_up(values: list[Any], roll_up: RollUp) -> Any:
    unknown = "" if isinstance(values[0], str) else None
    match roll_up:
        case RollUp.SAME:
            return values[0] if all(value == values[0] for value in values) else unknown
        case RollUp.WORST:
            return min(values, key=_badness)
        case RollUp.SUM:
            return None if any(value is None for value in values) else sum(values)
        case RollUp.MAX:
            return None if any(value is None for value in values) else max(values)


def _badness(status: str) -> int:
    return _WORST_FIRST.index(status) if status in _WORST_FIRST else 0
