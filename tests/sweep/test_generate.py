from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.sweep.builders import ScriptedExecutor, answered, call, died, mm, seen, tensor, vector
from torchstone.errors import InputError
from torchstone.record.config import Configuration, SeenConfiguration, TensorFacts
from torchstone.record.task import Task, TaskResult
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Atom, Items, Opaque, tensors_in
from torchstone.record.vector import Validity, Vector
from torchstone.sweep.child.validity import check_vectors
from torchstone.sweep.generate import MOST_PER_VECTOR, choose, generate, neighbours_of, parse_duration, resized, shrink
from torchstone.sweep.vectors import vector_of


class RealChecks(ScriptedExecutor):
    """Asks torch itself, in this process."""

    def submit(self, task: Task) -> None:
        super().submit(task)
        self._script[task.id] = [answered(task.id, check_vectors(task.payload))]


def vectors_of(*configurations: Configuration, neighbours: bool = False) -> list[Vector]:
    return generate([seen(one) for one in configurations], RealChecks(), neighbours=neighbours)


def test_a_call_that_torch_takes_becomes_a_valid_vector_with_its_role() -> None:
    found = vectors_of(mm(), call("aten.t.default", self_=tensor(2, 3)))

    assert [(one.op, one.role, one.validity.value) for one in found] == [
        ("aten.mm.default", "compute", "valid"),
        ("aten.t.default", "view", "valid"),
    ]


def test_a_traced_call_that_torch_refuses_stays_with_the_reason() -> None:
    (found,) = vectors_of(call("aten.mm.default", self_=tensor(2, 3), mat2=tensor(9, 9)))

    assert found.validity is Validity.INVALID
    assert "RuntimeError" in found.reason


def test_factories_are_left_out_by_name_not_silently() -> None:
    (found,) = vectors_of(call("aten.ones_like.default", self_=tensor(2)))

    assert found.reason == "its role is factory; ask for it with --roles"


def test_neighbours_are_kept_only_if_they_are_valid_calls() -> None:
    found = vectors_of(call("aten.view.default", self_=tensor(6), size=(Opaque(class_name="x"))), mm(), neighbours=True)
    beside = [one for one in found if one.neighbour_of]

    assert beside
    assert {one.validity for one in beside} == {Validity.VALID}
    assert len({one.id for one in found}) == len(found)


def test_a_neighbour_that_a_model_called_too_is_the_models() -> None:
    found = vectors_of(mm(2, 3, 4), mm(2, 1, 4), neighbours=True)

    assert [one.suite for one in found if one.id == mm(2, 1, 4).key] == ["model_traced"]


class OneKills(ScriptedExecutor):
    """A process that is asked about a certain call does not live to answer."""

    def results(self) -> Iterator[TaskResult]:
        while self._queue:
            task = self._queue.pop(0)
            ops = [one["op"] for one in task.payload["calls"]]
            yield self._answer(task, ops)

    @staticmethod
    def _answer(task: Task, ops: list[str]) -> TaskResult:
        return died(task.id) if "aten.sin.default" in ops else answered(task.id, check_vectors(task.payload))


def test_a_call_that_kills_the_process_harms_no_other() -> None:
    told: list[SeenConfiguration] = [seen(mm()), seen(call("aten.sin.default", self_=tensor(2))), seen(mm(5, 5, 5))]

    found = generate(told, OneKills())

    assert [one.validity.value for one in found] == ["valid", "invalid", "valid"]
    assert "did not live" in found[1].reason


def made(identity: str, cluster: str, calls: int) -> Vector:
    return vector(mm(), id=identity, cluster=cluster, calls=calls)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), (" 2 m", 120)])
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "5d", "-3s"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match="10m"):
        parse_duration(text)


def test_without_a_budget_everything_is_chosen() -> None:
    vectors = [made("a", "x", 1), made("b", "x", 2)]

    assert choose(vectors, None).vectors == tuple(vectors)


def test_a_budget_takes_the_most_called_of_each_cluster_first() -> None:
    vectors = [made("a", "x", 100), made("b", "x", 90), made("c", "y", 1), made("d", "z", 5)]
    times = dict.fromkeys("abcd", 1.0)

    chosen = choose(vectors, 3.0, times)

    assert [one.id for one in chosen.vectors] == ["a", "c", "d"]
    assert (chosen.clusters, chosen.calls, chosen.expected_s) == ((3, 3), (106, 196), 3.0)


def test_larger_tensors_are_expected_to_take_longer() -> None:
    small = choose([vector(mm(2, 2, 2))], None).expected_s
    large = choose([vector(mm(2000, 2000, 2000))], None).expected_s

    assert large > 10 * small
    assert tensor(2000, 2000).elements == 4_000_000


def test_vectors_that_are_not_valid_stay_and_cost_nothing() -> None:
    broken = vector(mm(), id="x", validity=Validity.INVALID, reason="why")

    chosen = choose([broken], 0.0)

    assert (chosen.vectors, chosen.expected_s) == ((broken,), 0.0)


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 9), st.floats(0.1, 2)), max_size=12), st.floats(0, 10))
def test_a_budget_is_never_exceeded_and_nothing_that_fits_is_left(
    told: list[tuple[str, int, float]], budget_s: float
) -> None:
    vectors = [made(f"v{number}", cluster, calls) for number, (cluster, calls, _) in enumerate(told)]
    times = {f"v{number}": seconds for number, (_, _, seconds) in enumerate(told)}

    chosen = choose(vectors, budget_s, times)

    spent = sum(times[one.id] for one in chosen.vectors)
    left = [times[one.id] for one in vectors if one not in chosen.vectors]
    assert spent <= budget_s + 1e-9
    assert all(spent + seconds > budget_s - 1e-9 for seconds in left)


def shapes(one: Vector) -> list[tuple[int, ...]]:
    assert one.configuration is not None
    return [spec.shape for argument in one.configuration.arguments for spec in tensors_in(argument.value)]


def test_every_size_goes_down_as_far_as_it_still_fails() -> None:
    def still_fails(candidates: list[Vector]) -> Vector | None:
        return next((one for one in candidates if shapes(one)[0][1] >= 8), None)

    small = shrink(vector(mm(64, 32, 128)), still_fails)

    assert shapes(small) == [(1, 8), (8, 1)]


def test_what_stops_failing_at_once_stays_as_it_is() -> None:
    original = vector(mm(4, 8, 16))

    assert shrink(original, lambda _: None) is original


def test_it_ends_when_nothing_is_left_to_make_smaller() -> None:
    small = shrink(vector(mm(4, 8, 16)), lambda candidates: candidates[0] if candidates else None)

    assert {size for shape in shapes(small) for size in shape} == {1}


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
