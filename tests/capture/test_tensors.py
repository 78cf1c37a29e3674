import torch

from torchstone.capture.tables import TensorColumns, storage_pointer


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
    columns.copy_constants(range(2), shift=10)
    assert columns.constants(range(3, 20)) == [11]


def test_a_sparse_tensor_has_no_plain_memory() -> None:
    assert storage_pointer(torch.eye(2).to_sparse()) is None
