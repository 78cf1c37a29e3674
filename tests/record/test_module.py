import pytest
from hypothesis import given

from tests.record import strategies
from tests.report.traces import transformer
from torchstone.record.module import Module, ModuleCall, ModuleCallTable


@given(strategies.modules)
def test_equal_modules_hash_alike(module: Module) -> None:
    assert len({module, Module(**{name: getattr(module, name) for name in module.__struct_fields__})}) == 1


def test_a_row_of_the_table_is_one_call() -> None:
    trace = transformer(1)
    table = trace.module_calls

    root = table[0]

    assert (root.index, root.parent, root.first_op, root.end_op) == (0, -1, 0, len(trace.ops))
    assert trace.modules[root.module].path == ""
    assert root.signature.arguments[0].value == trace.tensors[root.inputs[0]].spec


def test_the_rows_are_as_many_as_the_table_is_long() -> None:
    table = transformer(2).module_calls
    rows = list(table)

    assert [row.index for row in rows] == list(range(len(table)))
    assert table[-1] == rows[-1]
    with pytest.raises(IndexError):
        table[len(table)]


def test_a_call_lies_inside_the_call_that_made_it() -> None:
    table = transformer(2).module_calls

    def inside(call: ModuleCall, outer: ModuleCall) -> bool:
        return outer.first_op <= call.first_op <= call.end_op <= outer.end_op

    assert all(call.parent < call.index and inside(call, table[call.parent]) for call in table if call.parent >= 0)


def test_an_empty_table_has_no_rows() -> None:
    assert list(ModuleCallTable()) == []
