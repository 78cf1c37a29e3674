from collections.abc import Iterator

import pytest

from tests.store.builders import at, relu, seen
from torchstone.record.config import OpSummary, StoreInfo, TraceRun
from torchstone.store import rows
from torchstone.store.database import Store
from torchstone.store.rows import Query

TANH = "aten.tanh.default"


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with Store.open(database) as opened:
        opened.add(
            [
                seen(relu(2, 3), at("a.py", model="a", count=2), at("b.py", model="b", count=3)),
                seen(relu(2, 3, dtype="bfloat16"), at("b.py", model="b", count=None)),
                seen(relu(7, op=TANH, dtype="int8"), at("a.py", model="a", count=5)),
                seen(relu(op=TANH)),
            ],
            runs=[TraceRun(source="a.py", run="1")],
        )
        yield opened


def shapes(store: Store, query: Query) -> list[str]:
    return sorted(str(one.configuration.arguments[0].value) for one in store.configurations(query))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (Query(op=TANH), ["float32[]", "int8[7]"]),
        (Query(dtype="bfloat16"), ["bfloat16[2, 3]"]),
        (Query(dtype="float"), []),
        (Query(rank=2), ["bfloat16[2, 3]", "float32[2, 3]"]),
        (Query(rank=0), ["float32[]"]),
        (Query(model="a"), ["float32[2, 3]", "int8[7]"]),
        (Query(models=("b", "c")), ["bfloat16[2, 3]", "float32[2, 3]"]),
        (Query(source="a.py", op=TANH), ["int8[7]"]),
        (Query(sources=()), []),
        (Query(dtype="%"), []),
    ],
)
def test_a_query_gives_what_fits_and_nothing_else(store: Store, query: Query, found: list[str]) -> None:
    assert shapes(store, query) == found


def test_the_beginning_of_a_key_is_enough(store: Store) -> None:
    key = relu(2, 3).key

    assert [one.key for one in store.configurations(Query(key=key[:12]))] == [key]


def test_configurations_come_by_op_and_key(store: Store) -> None:
    order = [(one.configuration.op, one.key) for one in store.configurations()]

    assert order == sorted(order)


def test_pages_are_invisible(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(store.configurations())
    monkeypatch.setattr(rows, "_FIRST_PAGE", 1)
    monkeypatch.setattr(rows, "_PAGE", 2)

    assert list(store.configurations()) == whole


def test_ops_are_listed_by_name(store: Store) -> None:
    assert store.op_names() == ("aten.relu.default", TANH)


def test_an_empty_database_lists_no_op(database: str) -> None:
    with Store.open(database) as empty:
        assert empty.op_names() == ()


def test_ops_are_summed_up(store: Store) -> None:
    assert store.operations() == (
        OpSummary(op="aten.relu.default", configurations=2, calls=5, uncounted=1, models=("a", "b")),
        OpSummary(op=TANH, configurations=2, calls=5, uncounted=0, models=("a",)),
    )


def test_ops_of_a_model_count_its_own_calls(store: Store) -> None:
    (relus,) = store.operations(Query(model="b"))

    assert (relus.configurations, relus.calls, relus.models) == (2, 3, ("b",))


def test_the_database_in_numbers(store: Store) -> None:
    assert store.info() == StoreInfo(configurations=4, operations=2, sources=2, calls=10, uncounted=1, runs=1)
