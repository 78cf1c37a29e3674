import torch

from torchstone.capture.ops import OpColumns
from torchstone.capture.reuse import Extent, RowCopier, Rows
from torchstone.capture.tables import CallColumns, TensorColumns
from torchstone.record.op import OpSignature


def rows_of_one_call() -> tuple[Rows, Extent]:
    """External tensor 0, then a call of module 1 with an op 0 -> 1 and an in-place op on 1."""
    rows = Rows(tensors=TensorColumns(stand_in=False), ops=OpColumns(), calls=CallColumns())
    rows.tensors.add_external(torch.zeros(2), kind="input", name="x")
    rows.tensors.add_external(torch.zeros(2), kind="input", name="y")
    start = rows.here()
    call = rows.calls.begin(1, -1, 0)
    rows.tensors.add(torch.zeros(2), rows.tensors.new_storage())
    rows.ops.signatures.append(OpSignature(op="aten.relu.default", arguments=(), output=None))
    for inputs, outputs in (((0,), (2,)), ((2,), (2,))):
        rows.ops.signature_of.append(0)
        rows.ops.inputs.append(inputs)
        rows.ops.outputs.append(outputs)
        rows.ops.module_calls.append(call)
    rows.ops.writes[1] = (2,)
    rows.calls.inputs[call], rows.calls.outputs[call], rows.calls.end_ops[call] = (0,), (2,), 2
    rows.calls.signature_of[call] = rows.calls.number_signature((), None)
    return rows, rows.since(start)


def test_a_copy_has_tensors_of_its_own_and_the_inputs_it_is_given() -> None:
    rows, extent = rows_of_one_call()

    copier = RowCopier(rows, extent, {0: 1})
    copier.copy(module_shift=3, parent=7)

    assert rows.ops.inputs[2:] == [(1,), (3,)]
    assert rows.ops.outputs[2:] == [(3,), (3,)]
    assert rows.ops.writes == {1: (2,), 3: (3,)}
    assert rows.ops.module_calls == [0, 0, 1, 1]
    assert (rows.calls.modules, rows.calls.parents) == ([1, 4], [-1, 7])
    assert (rows.calls.first_ops, rows.calls.end_ops) == ([0, 2], [2, 4])
    assert rows.tensors.storage_of[3] != rows.tensors.storage_of[2]
    assert copier.renumbered(2) == 3


def test_rows_that_touch_only_their_own_and_the_named_are_self_contained() -> None:
    rows, extent = rows_of_one_call()

    assert rows.self_contained(extent, {0}, set(), range(1, 2))
    assert not rows.self_contained(extent, set(), set(), range(1, 2)), "an unnamed input"
    assert not rows.self_contained(extent, {0}, set(), range(2, 3)), "a module outside"
    assert not rows.self_contained(extent, {0}, {2}, range(1, 2)), "a write to real memory"


def test_a_constant_that_is_not_written_in_code_is_not_the_calls_own() -> None:
    rows, extent = rows_of_one_call()
    start = rows.here()
    rows.tensors.add_external(torch.zeros(1), kind="constant", name="")
    assert extent.tensors.stop == start.tensors.stop

    assert not rows.self_contained(rows.since(start), set(), set(), range(1, 2))
