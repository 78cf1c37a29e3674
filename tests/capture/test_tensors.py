import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.capture.tables import TensorColumns, storage_pointer, without


def test_a_tensor_keeps_its_number_and_loses_it_afterwards() -> None:
    columns, tensor = TensorColumns(stand_in=False), torch.zeros(2)

    number = columns.add_external(tensor, kind="input", name="x")

    assert columns.number_of(tensor) == number
    columns.forget_marks()
    assert vars(tensor) == {}


def test_two_captures_do_not_see_each_others_numbers() -> None:
    first, second, tensor = TensorColumns(stand_in=False), TensorColumns(stand_in=False), torch.zeros(2)
    first.add_external(torch.zeros(1), kind="input", name="a")
    first.add_external(tensor, kind="input", name="b")

    assert not second.is_known(tensor)
    assert second.number_of(tensor) == 0


def test_external_tensors_of_one_memory_share_a_storage() -> None:
    columns, base = TensorColumns(stand_in=False), torch.zeros(4)

    numbers = [columns.add_external(tensor, kind="parameter", name="p") for tensor in (base, base[:2], torch.zeros(4))]

    storages = [columns.storage_of[number] for number in numbers]
    assert storages[0] == storages[1] != storages[2]


def test_specs_stand_in_the_order_of_their_first_tensor() -> None:
    columns = TensorColumns(stand_in=False)
    columns.spec_number(torch.zeros(9))
    for shape in ((3,), (2,), (3,)):
        columns.add(torch.zeros(shape), columns.new_storage())

    table = columns.freeze()

    assert [spec.shape for spec in table.specs] == [(3,), (2,)]
    assert table.spec_of == (0, 1, 0)


def test_constants_are_found_by_their_numbers() -> None:
    columns = TensorColumns(stand_in=False)
    numbers = [columns.add_external(torch.zeros(1), kind=kind, name="") for kind in ("input", "constant", "constant")]

    assert columns.constants(range(3)) == numbers[1:]
    assert columns.constants(range(2)) == numbers[1:2]


def test_tensors_of_copies_have_numbers_and_no_rows() -> None:
    columns = TensorColumns(stand_in=False)
    original = columns.add(torch.zeros(2), columns.new_storage())
    columns.leave_numbers(3, 2)
    after = columns.add(torch.zeros(3), columns.new_storage())
    object_of_copy = torch.zeros(2)
    columns.add_copied(object_of_copy, 2, original, 1)

    table = columns.freeze([range(1, 4)])

    assert (after, len(columns), columns.number_of(object_of_copy)) == (4, 5, 2)
    assert (table.spec_of, table.storage_of) == ((0, 1), (0, 3))


@pytest.mark.parametrize(
    ("left_out", "left"), [([], [0, 1, 2, 5]), ([range(1, 3)], [0, 5]), ([range(1), range(1, 1), range(2, 6)], [1])]
)
def test_numbers_in_ranges_are_left_out(left_out: list[range], left: list[int]) -> None:
    assert without([0, 1, 2, 5], left_out) == left


def test_a_sparse_tensor_has_no_plain_memory() -> None:
    assert storage_pointer(torch.eye(2).to_sparse()) is None


@pytest.mark.parametrize("mode", ["fake", "meta", "cpu"])
def test_a_tensor_that_the_model_copies_with_copy_is_another_tensor(mode: str) -> None:
    class Copies(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            first = x + 1
            return copy.deepcopy(first).add_(first) + copy.copy(first)

    trace = capture(Copies(), (torch.ones(5, 1000),), mode)
    assert trace.failure is None
    added, other = (
        next(op for op in trace.ops if op.signature.op == name) for name in ("aten.add.Tensor", "aten.add_.Tensor")
    )
    places = trace.tensors.storage_of
    assert places[other.inputs[0]] != places[added.outputs[0]] == places[other.inputs[1]]


def test_what_a_model_keeps_after_a_capture_can_be_saved() -> None:
    kept: list[Tensor] = []
    model = nn.Linear(3, 3)
    model.register_forward_hook(lambda _module, _given, made: kept.append(made))
    capture(model, (torch.ones(2, 3),), "cpu")
    assert torch.equal(pickle.loads(pickle.dumps(kept[0])), kept[0])  # noqa: S301 - written here
