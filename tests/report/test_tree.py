import pytest

from tests.report.traces import transformer
from torchstone.record.unique import Fold, module_folds
from torchstone.report.section import FOLD, ModuleColumn, RollUp, Shown, lay_out_tree, spread


def test_a_run_gets_a_row_that_is_the_parent_of_its_members() -> None:
    layout = lay_out_tree([-1, 0, 1, 0, 3, 0], [Fold(first=1, members=(1, 3))])

    assert layout.modules == (0, FOLD, 1, 2, 3, 4, 5)
    assert layout.parents == (-1, 0, 1, 2, 1, 4, 0)
    assert layout.members[1] == (1, 3)


def test_every_module_stands_in_the_tree_exactly_once() -> None:
    trace = transformer(3)
    layout = lay_out_tree([module.parent for module in trace.modules], module_folds(trace))

    assert [module for module in layout.modules if module != FOLD] == list(range(len(trace.modules)))
    assert all(parent < row for row, parent in enumerate(layout.parents))


@pytest.mark.parametrize(
    ("roll_up", "values", "rolled_up"),
    [
        (RollUp.SUM, [0, 2, 3], 5),
        (RollUp.SUM, [0, 2, None], None),
        (RollUp.MAX, [0, 2, 3], 3),
        (RollUp.SAME, [0, 2, 2], 2),
        (RollUp.SAME, [0, 2, 3], None),
        (RollUp.SAME, ["", "a", "b"], ""),
        (RollUp.WORST, ["", "passed", "failed"], "failed"),
        (RollUp.WORST, ["", "passed", "a word nobody knows"], "a word nobody knows"),
    ],
)
def test_a_run_says_what_its_members_say_together(roll_up: RollUp, values: list[int], rolled_up: object) -> None:
    layout = lay_out_tree([-1, 0, 0], [Fold(first=1, members=(1, 2))])
    column = ModuleColumn(name="c", title="C", values=values, shown=Shown.COUNT, roll_up=roll_up)

    assert list(spread(column, layout).values) == [values[0], rolled_up, values[1], values[2]]
