from hypothesis import given
from sqlalchemy import Row
from sqlalchemy.engine.result import SimpleResultMetaData

from tests.record.config_strategies import occurrences, runs, seen
from tests.store.builders import relu
from tests.store.builders import seen as seen_at
from torchstone.record.config import Configuration, Occurrence, SeenConfiguration, TraceRun, in_order
from torchstone.record.value import Argument
from torchstone.store.rows import (
    configuration_row,
    joined_words,
    knowledge_text,
    occurrence_of,
    origin_row,
    place_row,
    run_of,
    run_row,
    seen_of,
)


def joined(one: Occurrence) -> object:
    values = {**origin_row(one), **place_row(one), "calls": one.count}
    names = SimpleResultMetaData(list(values))
    return Row(names, None, names._key_to_index, tuple(values.values()))


@given(seen)
def test_a_configuration_survives_its_row(one: SeenConfiguration) -> None:
    row = configuration_row(one, key=one.key, number=1)

    assert repr(seen_of(row["body"], row["knowledge"], one.occurrences)) == repr(one)


@given(occurrences)
def test_an_occurrence_survives_its_rows(one: Occurrence) -> None:
    assert repr(occurrence_of(joined(one))) == repr(one)


@given(runs)
def test_a_run_survives_its_row(run: TraceRun) -> None:
    assert repr(run_of(run_row(run)["body"])) == repr(run)


def test_columns_are_projections_of_the_body() -> None:
    call = Configuration(
        op="aten.mm.default",
        arguments=(
            *relu(2, 3, dtype="int8").arguments,
            *relu(4, dtype="float32").arguments,
            Argument(name="a", value=1),
        ),
    )

    row = configuration_row(seen_at(call), key="k", number=7)

    assert (row["id"], row["key"], row["op"]) == (7, "k", "aten.mm.default")
    assert (row["dtypes"], row["ranks"]) == (",float32,int8,", ",1,2,")


def test_no_words_are_no_text() -> None:
    assert joined_words(set()) == ""
    assert joined_words({"b", "a"}) == ",a,b,"


def test_nothing_known_is_null() -> None:
    assert knowledge_text(seen_at(relu(2))) is None


@given(occurrences, occurrences)
def test_digests_are_equal_exactly_when_places_are(one: Occurrence, other: Occurrence) -> None:
    same = in_order(SeenConfiguration(configuration=relu(1), occurrences=(one.place, other.place)))
    digests = {(origin_row(each)["digest"], place_row(each)["digest"]) for each in (one, other)}

    assert len(digests) == len(same.occurrences)
