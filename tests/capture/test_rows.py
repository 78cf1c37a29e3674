import torch

from torchstone.capture.ops import OpColumns
from torchstone.capture.rows import Copy, Extent, Original, Rows, Used
from torchstone.capture.tables import CallColumns, TensorColumns
from torchstone.record.module import ModuleSignature
from torchstone.record.op import OpSignature

_SIGNATURE = ModuleSignature(arguments=(), output=None)


def rows_of_one_call() -> tuple[Rows, Extent]:
    """External tensors 0 and 1, then a call of module 1 with an op 0 -> 2 and an in-place op on 2."""
    rows = Rows(tensors=TensorColumns(stand_in=False), ops=OpColumns(), calls=CallColumns())
    rows.tensors.add_external(torch.zeros(2), kind="input", name="x")
    rows.tensors.add_external(torch.zeros(2), kind="input", name="y")
    start = rows.here()
    call = rows.calls.begin(1, -1, 0, 0)
    rows.tensors.add(torch.zeros(2), rows.tensors.new_storage())
    rows.ops.signatures.append(OpSignature(op="aten.relu.default", arguments=(), output=None))
    for number, (inputs, outputs) in enumerate((((0,), (2,)), ((2,), (2,)))):
        rows.ops.rows.append(number)
        rows.ops.signature_of.append(0)
        rows.ops.inputs.append(inputs)
        rows.ops.outputs.append(outputs)
        rows.ops.module_calls.append(call)
    rows.ops.writes[1] = (2,)
    rows.calls.inputs[call], rows.calls.outputs[call], rows.calls.end_ops[call] = (0,), (2,), 2
    rows.calls.signature_of[call] = rows.calls.number_signature(_SIGNATURE)
    return rows, rows.since(start)


def copied(rows: Rows, extent: Extent) -> Copy:
    used = rows.used(extent, {0}, set(), range(1, 2))
    assert used is not None
    original = Original(extent=extent, used=used, module=1, parent=-1, site=0)
    copy = Copy(original=original, at=rows.place(), external={0: 1}, module=4, parent=-1, site=0)
    rows.add_copy(copy)
    return copy


def test_a_copy_adds_no_rows_and_has_its_numbers() -> None:
    rows, extent = rows_of_one_call()

    copied(rows, extent)

    assert (len(rows.ops), len(rows.calls), len(rows.tensors), rows.tensors.num_storages) == (4, 2, 4, 4)
    assert (len(rows.ops.freeze()), len(rows.calls.freeze()), len(rows.tensors.freeze())) == (2, 1, 3)
    assert rows.calls.begin(9, -1, len(rows.ops), 0) == 2


def test_what_a_copy_makes_lies_in_memory_of_its_own_and_views_in_that_of_its_inputs() -> None:
    rows, extent = rows_of_one_call()
    copy = copied(rows, extent)

    assert rows.storage_in_copy(copy, 2) == 3
    assert rows.storage_in_copy(copy, 0) == rows.tensors.storage_of[1]


def test_rows_that_touch_only_their_own_and_the_named_can_be_copied() -> None:
    rows, extent = rows_of_one_call()

    assert rows.used(extent, {0}, set(), range(1, 2)) == Used(tensors=(0,), written=frozenset())
    assert rows.used(extent, set(), set(), range(1, 2)) is None, "an unnamed input"
    assert rows.used(extent, {0}, set(), range(2, 3)) is None, "a module outside"
    assert rows.used(extent, {0}, {2}, range(1, 2)) is None, "a write to real memory"


def test_a_call_around_a_copy_uses_what_the_copy_uses() -> None:
    rows, extent = rows_of_one_call()
    start = rows.here()
    copied(rows, extent)

    assert rows.used(rows.since(start), {1}, set(), range(1, 5)) == Used(tensors=(1,), written=frozenset())
    assert rows.used(rows.since(start), {0}, set(), range(1, 5)) is None
    assert rows.used(rows.since(start), {1}, set(), range(1, 2)) is None


def test_a_constant_that_is_not_written_in_code_is_not_the_calls_own() -> None:
    rows, extent = rows_of_one_call()
    start = rows.here()
    rows.tensors.add_external(torch.zeros(1), kind="constant", name="")
    assert extent.tensors.stop == start.end.tensor

    assert rows.used(rows.since(start), set(), set(), range(1, 2)) is None
