import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.record.config_strategies import facts, occurrences, seen, seen_of
from torchstone.record.config import (
    Configuration,
    Occurrence,
    SeenConfiguration,
    TensorFacts,
    counted_once,
    in_order,
    merged,
)
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Value

MATRIX = TensorSpec(shape=(4, 4), dtype="float32", stride=(4, 1))
TRIPLES = st.tuples(*[seen_of(st.just(Configuration(op="aten.relu.default")))] * 3)


def relu(value: Value = MATRIX) -> Configuration:
    return Configuration(op="aten.relu.default", arguments=(Argument(name="self", value=value),))


def text_of(one: SeenConfiguration) -> bytes:
    return msgspec.json.encode(one)


@given(TRIPLES)
def test_merging_does_not_ask_for_the_order(three: tuple[SeenConfiguration, ...]) -> None:
    one, other, _ = three

    assert text_of(merged(one, other)) == text_of(merged(other, one))


@given(TRIPLES)
def test_merging_does_not_ask_for_the_grouping(three: tuple[SeenConfiguration, ...]) -> None:
    one, other, third = three

    assert text_of(merged(merged(one, other), third)) == text_of(merged(one, merged(other, third)))


@given(TRIPLES)
def test_merging_the_same_again_changes_nothing(three: tuple[SeenConfiguration, ...]) -> None:
    one, other, _ = three
    both = merged(one, other)

    assert text_of(merged(both, other)) == text_of(both)
    assert text_of(merged(one, one)) == text_of(in_order(one))


@given(seen)
def test_what_was_seen_survives_json(one: SeenConfiguration) -> None:
    assert repr(msgspec.json.decode(msgspec.json.encode(one), type=SeenConfiguration)) == repr(one)


@given(st.lists(occurrences, max_size=4))
def test_every_place_stays_and_none_is_there_twice(given_places: list[Occurrence]) -> None:
    places = [msgspec.json.encode(one.place) for one in counted_once(given_places)]

    assert sorted(places) == sorted({msgspec.json.encode(one.place) for one in given_places})


@given(st.lists(facts, min_size=1, max_size=4))
def test_facts_of_a_tensor_hold_for_every_call(told: list[TensorFacts]) -> None:
    together = in_order(SeenConfiguration(configuration=relu(), facts=tuple(told)))

    for fact in told:
        (known,) = (one for one in together.facts if one.tensor == fact.tensor)
        assert fact.lowest is None or (known.lowest is not None and known.lowest <= fact.lowest)
        assert fact.highest is None or (known.highest is not None and known.highest >= fact.highest)
        assert not fact.has_nan or known.has_nan
        assert fact.values is None or known.values is not None


@pytest.mark.parametrize(("one", "other", "together"), [(None, None, None), (None, 3, 3), (3, None, 3), (3, 5, 5)])
def test_the_fuller_count_of_a_run_stays(one: int | None, other: int | None, together: int | None) -> None:
    (found,) = counted_once([Occurrence(source="net.py", count=one), Occurrence(source="net.py", count=other)])

    assert found.count == together


def test_calls_of_two_runs_add_up() -> None:
    runs = (Occurrence(source="net.py", run="1", count=3), Occurrence(source="net.py", run="2", count=4))

    assert SeenConfiguration(configuration=relu(), occurrences=runs).calls == 7


def test_calls_that_nobody_counted_are_not_guessed() -> None:
    assert SeenConfiguration(configuration=relu(), occurrences=(Occurrence(source="master.json"),)).calls == 0


def test_the_key_names_the_configuration_and_not_where_it_was_seen() -> None:
    here = SeenConfiguration(configuration=relu(), occurrences=(Occurrence(source="a"),))
    there = SeenConfiguration(configuration=relu(), facts=(TensorFacts(tensor=0, lowest=1),))

    assert here.key == there.key == relu().key


@pytest.mark.parametrize(
    "other",
    [
        relu(msgspec.structs.replace(MATRIX, dtype="bfloat16")),
        relu(msgspec.structs.replace(MATRIX, stride=(1, 4))),
        relu(msgspec.structs.replace(MATRIX, storage_offset=4)),
        relu(msgspec.structs.replace(MATRIX, requires_grad=True)),
        msgspec.structs.replace(relu(), machine="n150"),
        msgspec.structs.replace(relu(), aliases=((0, 1),)),
    ],
)
def test_whatever_a_backend_can_see_makes_another_configuration(other: Configuration) -> None:
    assert other.key != relu().key


@pytest.mark.parametrize(("one", "other"), [(relu(1), relu(value=True)), (relu(), relu(None))])
def test_two_configurations_are_never_merged(one: Configuration, other: Configuration) -> None:
    with pytest.raises(ValueError, match="are not the same"):
        merged(SeenConfiguration(configuration=one), SeenConfiguration(configuration=other))
