from msgspec.structs import replace

from tests.sweep.builders import call, mm, seen, tensor, vector
from torchstone.record.config import TensorFacts
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Atom, Items, tensors_in
from torchstone.record.vector import Vector
from torchstone.sweep.generate import MOST_PER_VECTOR, neighbours_of, resized
from torchstone.sweep.vectors import vector_of


def specs(one: Vector) -> list[TensorSpec]:
    assert one.configuration is not None
    return [spec for argument in one.configuration.arguments for spec in tensors_in(argument.value)]


def by_change(one: Vector) -> dict[str, Vector]:
    return {neighbour.change: neighbour for neighbour in neighbours_of(one, most=50)}


def test_a_size_changes_wherever_it_stands() -> None:
    found = by_change(vector(mm(2, 3, 4)))["size 3 -> 1"]

    assert [spec.shape for spec in specs(found)] == [(2, 1), (1, 4)]
    assert [spec.stride for spec in specs(found)] == [(1, 1), (4, 1)]


def test_sizes_in_lists_and_numbers_change_with_the_tensors() -> None:
    view = call("aten.view.default", self_=tensor(6, 4), size=Items(kind="list", items=(2, 3, 4)))
    changed, _ = resized(view, (), 4, 5)

    assert changed.arguments[1].value == Items(kind="list", items=(2, 3, 5))


def test_a_transposed_tensor_stays_transposed() -> None:
    changed, _ = resized(call("aten.neg.default", self_=tensor(3, 4, stride=(1, 3))), (), 4, 7)

    (spec,) = tensors_in(changed.arguments[0].value)
    assert (spec.shape, spec.stride) == ((3, 7), (1, 3))


def test_an_expanded_tensor_stays_expanded() -> None:
    changed, _ = resized(call("aten.neg.default", self_=tensor(3, 4, stride=(0, 1))), (), 4, 7)

    (spec,) = tensors_in(changed.arguments[0].value)
    assert spec.stride == (0, 1)


def test_element_types_change_together_with_the_types_that_are_asked_for() -> None:
    copy = call("aten._to_copy.default", self_=tensor(2), dtype=Atom(kind="dtype", text="float32"))
    found = by_change(vector(copy))["float32 -> bfloat16"]

    assert found.configuration is not None
    assert specs(found)[0].dtype == "bfloat16"
    assert found.configuration.arguments[1].value == Atom(kind="dtype", text="bfloat16")


def test_strides_change_one_tensor_at_a_time() -> None:
    changes = by_change(vector(mm(2, 3, 4)))

    assert specs(changes["tensor 1 column by column"])[1].stride == (1, 3)
    assert specs(changes["tensor 1 column by column"])[0].stride == (3, 1)
    gaps = specs(changes["tensor 0 with gaps between rows"])[0]
    assert (gaps.stride, gaps.storage_offset) == ((11, 1), 1)


def test_indices_stay_below_a_size_that_shrank() -> None:
    table = call("aten.embedding.default", weight=tensor(10, 4), indices=tensor(3, dtype="int64"))
    fact = TensorFacts(tensor=1, lowest=2, highest=9, values=(2, 9, 5))

    _, (changed,) = resized(table, (fact,), 10, 1)

    assert (changed.lowest, changed.highest, changed.values) == (0, 0, None)


def test_values_stay_whole_where_the_size_did_not_change() -> None:
    table = call("aten.embedding.default", weight=tensor(10, 4), indices=tensor(3, dtype="int64"))
    fact = TensorFacts(tensor=1, lowest=0, highest=2, values=(0, 1, 2))

    _, (changed,) = resized(table, (fact,), 4, 5)

    assert changed.values == (0, 1, 2)


def test_neighbours_are_all_different_few_and_say_where_they_come_from() -> None:
    source = vector_of(seen(mm(8, 16, 32)))
    found = list(neighbours_of(source))

    assert 0 < len(found) <= MOST_PER_VECTOR
    assert len({one.id for one in found} | {source.id}) == len(found) + 1
    assert {(one.neighbour_of, one.suite, one.calls) for one in found} == {(source.id, "neighbours", 0)}


def test_a_vector_of_a_module_has_no_neighbours() -> None:
    assert list(neighbours_of(replace(vector(), configuration=None))) == []
