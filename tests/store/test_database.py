from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.record.config_strategies import runs, seen
from tests.store.builders import at, relu
from tests.store.builders import seen as seen_at
from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.config import SeenConfiguration, TensorFacts, TraceRun, in_order, merged
from torchstone.store.database import Store
from torchstone.store.rows import Query

ONE = seen_at(relu(2, 3), at(count=4))
OTHER = seen_at(relu(2, 3), at(run="2", count=5), facts=(TensorFacts(tensor=0, lowest=-1.0),))


def contents(store: Store) -> bytes:
    return msgspec.json.encode([list(store.configurations()), store.runs()])


def expected(added: list[SeenConfiguration]) -> bytes:
    joined: dict[str, SeenConfiguration] = {}
    for one in added:
        joined[one.key] = merged(joined[one.key], one) if one.key in joined else in_order(one)
    by_op = sorted(joined.values(), key=lambda one: (one.configuration.op.encode(), one.key))
    return msgspec.json.encode([by_op, []])


def test_what_was_added_comes_back(database: str) -> None:
    with Store.open(database) as store:
        added = store.add([ONE, OTHER, seen_at(relu(8))])

        assert (added.new, added.known) == (2, 0)
        assert contents(store) == expected([ONE, OTHER, seen_at(relu(8))])


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(seen, max_size=4))
def test_any_record_comes_back_from_sqlite(
    tmp_path_factory: pytest.TempPathFactory, added: list[SeenConfiguration]
) -> None:
    with Store.open(str(tmp_path_factory.mktemp("any") / "x.db")) as store:
        store.add(added)

        assert contents(store) == expected(added)


def test_the_same_from_both_databases(sqlite_file: str, postgres_url: str) -> None:
    added = [ONE, OTHER, seen_at(relu(8, op="ttnn.add")), seen_at(relu(8, op="aten.Z"), at())]
    with Store.open(sqlite_file) as here, Store.open(postgres_url) as there:
        here.add(added, runs=[TraceRun(source="net.py", run="1")])
        there.add(reversed(added), runs=[TraceRun(source="net.py", run="1")])

        assert contents(here) == contents(there)
        assert here.info() == there.info()
        assert here.operations() == there.operations()


def test_adding_again_changes_nothing(database: str) -> None:
    with Store.open(database) as store:
        store.add([ONE, OTHER], runs=[TraceRun(source="net.py", run="1")])
        before = contents(store)

        again = store.add([OTHER, ONE], runs=[TraceRun(source="net.py", run="1")])

        assert (again.new, again.known) == (0, 1)
        assert contents(store) == before


def test_a_count_grows_and_never_shrinks(database: str) -> None:
    with Store.open(database) as store:
        for count in (None, 3, 7, 5, None):
            store.add([seen_at(relu(2), at(count=count))])

        assert store.info().calls == 7


def test_another_process_sees_what_was_added(database: str) -> None:
    with Store.open(database) as store:
        store.add([ONE])
    with Store.open(database, create=False) as later:
        assert later.info().configurations == 1


def test_a_missing_file_is_not_made_for_a_reader(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="there is no database"):
        Store.open(str(tmp_path / "missing.db"), create=False)

    assert not (tmp_path / "missing.db").exists()


def test_a_folder_is_made_for_a_new_file(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "new" / "x.db")) as store:
        assert store.info().configurations == 0


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match="cannot create the folder"):
        Store.open(str(tmp_path / "file" / "x.db"))


def test_models_and_sources_are_listed(database: str) -> None:
    with Store.open(database) as store:
        store.add([seen_at(relu(2), at("b.py", model="b"), at("a.py", model="a"))])

        assert store.models() == ("a", "b")
        assert store.sources() == ("a.py", "b.py")


def test_a_query_chooses(database: str) -> None:
    with Store.open(database) as store:
        store.add([ONE, seen_at(relu(2, op="aten.tanh.default"))])

        assert [one.key for one in store.configurations(Query(op="aten.relu.default"))] == [ONE.key]


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(runs, max_size=3))
def test_runs_come_back(tmp_path_factory: pytest.TempPathFactory, added: list[TraceRun]) -> None:
    first = {(run.source, run.run): run for run in reversed(added)}
    with Store.open(str(tmp_path_factory.mktemp("runs") / "x.db")) as store:
        store.add([], runs=added)

        assert sorted(map(repr, store.runs())) == sorted(map(repr, first.values()))


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.integers(0, 2), max_size=5).flatmap(st.permutations), st.lists(seen, min_size=3, max_size=3))
def test_databases_merge_to_the_same_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], parts: list[SeenConfiguration]
) -> None:
    added = [parts[number] for number in order]
    folder = tmp_path_factory.mktemp("order")
    with Store.open(str(folder / "a.db")) as one, Store.open(str(folder / "b.db")) as other:
        one.add(added)
        for part in (*reversed(added), *added):
            other.add([part])

        assert contents(one) == contents(other)
