import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.configs.samples import new_tensor
from tests.record.config_strategies import facts, occurrences, seen, seen_of
from torchstone.record.codec import decode, encode
from torchstone.record.config import (
    ConfigTensor,
    Configuration,
    ModelCoverage,
    Occurrence,
    OpCoverage,
    OpLog,
    SeenConfiguration,
    SourceEnding,
    TargetKind,
    TensorFacts,
    TracedSource,
    counted_once,
    in_order,
    merged,
    tensors_of,
)
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Fields, Items, Value, value_from_json

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


def test_tensors_are_found_in_lists_too() -> None:
    spec = TensorSpec(shape=(2, 3), dtype="float32")
    call = Configuration(
        op="aten.cat.default",
        arguments=(Argument(name="tensors", value=Items(kind="list", items=(spec,))), Argument(name="dim", value=0)),
    )

    assert tensors_of(call) == (ConfigTensor(argument="tensors", dtype="float32", shape=(2, 3)),)


def test_tensors_of_other_tools_are_found_too() -> None:
    call = Configuration(
        op="ttnn.concat",
        arguments=(
            Argument(name="arg0", value=value_from_json([new_tensor([1, 32]), new_tensor([1, 64], dtype="INT32")])),
            Argument(name="arg1", value=value_from_json({"nested": {"deep": new_tensor([7])}})),
            Argument(name="arg2", value=Fields(class_name="ttnn.Tensor", fields=(("shape", "[3]"),))),
            Argument(
                name="arg3", value=Fields(class_name="Pair", fields=(("one", TensorSpec(shape=(), dtype="int8")),))
            ),
        ),
    )

    found = [(tensor.argument, tensor.dtype, tensor.shape) for tensor in tensors_of(call)]
    assert found == [
        ("arg0", "BFLOAT16", (1, 32)),
        ("arg0", "INT32", (1, 64)),
        ("arg1", "BFLOAT16", (7,)),
        ("arg2", "", (3,)),
        ("arg3", "int8", ()),
    ]


def log() -> OpLog:
    configuration = Configuration(op="aten.neg.default")
    return OpLog(
        target="tests",
        kind=TargetKind.PYTEST,
        run="1",
        created="2026-01-01T00:00:00+00:00",
        sources=tuple(
            TracedSource(name=ending, ending=ending, configurations=(SeenConfiguration(configuration=configuration),))
            for ending in SourceEnding
        ),
    )


@pytest.mark.parametrize(("keep_failing", "kept"), [(False, ["passed"]), (True, ["passed", "failed"])])
def test_what_failed_counts_only_where_asked_for_and_what_was_skipped_never(
    keep_failing: bool,  # noqa: FBT001 - a parameter of the test
    kept: list[str],
) -> None:
    assert [source.name for source in log().kept(keep_failing=keep_failing)] == kept


def test_an_op_log_survives_its_file() -> None:
    assert decode(encode(log()), OpLog, origin="here") == log()


MM = OpCoverage(op="mm", configurations=3, passed=1, failed=1, calls=10, passed_calls=4, failed_calls=5)
ADD = OpCoverage(op="add", configurations=1, passed=1, failed=0, calls=2, passed_calls=2, failed_calls=0)


def test_a_model_is_the_sum_of_its_ops() -> None:
    coverage = ModelCoverage(models=("net",), backend="eager", ops=(MM, ADD), uncounted=0)

    assert (coverage.calls, coverage.passed_calls, coverage.failed_calls) == (12, 6, 5)
    assert (coverage.configurations, coverage.passed) == (4, 2)
    assert coverage.share == 0.5


def test_without_counted_calls_there_is_no_share() -> None:
    assert ModelCoverage(models=("net",), backend="eager", ops=(), uncounted=3).share is None
