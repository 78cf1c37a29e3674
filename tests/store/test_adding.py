import msgspec
import pytest

from tests.store.builders import at, relu, seen
from torchstone.record.config import ForeignName, TensorFacts, TraceRun
from torchstone.store import rows
from torchstone.store.database import Store
from torchstone.store.engine import reading_from, writing_to
from torchstone.store.rows import Added, Query, add_chunk, add_run, chunks_of, read_configurations, read_runs


def test_the_same_configuration_twice_is_one_in_its_chunk() -> None:
    (chunk,) = chunks_of([seen(relu(2), at(run="1")), seen(relu(2), at(run="2")), seen(relu(3))])

    assert [len(one.occurrences) for one in chunk.values()] == [2, 0]


def test_chunks_keep_a_transaction_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "CHUNK", 2)

    assert [len(chunk) for chunk in chunks_of(seen(relu(size)) for size in range(5))] == [2, 2, 1]


def test_what_was_added_adds_up() -> None:
    assert Added(new=1, known=2) + Added(new=3, known=4) == Added(new=4, known=6)


def test_knowledge_about_a_known_configuration_is_joined(database: str) -> None:
    name = ForeignName(format="ttnn_master_v2", hash="abc")
    first = msgspec.structs.replace(seen(relu(2), facts=(TensorFacts(tensor=0, lowest=1),)), foreign=(name,))
    with Store.open(database) as store, writing_to(store.engine) as connection:
        for added in (first, seen(relu(2), facts=(TensorFacts(tensor=0, lowest=-1, highest=5),)), seen(relu(2))):
            add_chunk(connection, {added.key: added})

        (found,) = read_configurations(connection, Query())
        assert found.facts == (TensorFacts(tensor=0, lowest=-1, highest=5),)
        assert found.foreign == (name,)


def add_and_fail(store: Store) -> None:
    one = seen(relu(2), at())
    with writing_to(store.engine) as connection:
        add_chunk(connection, {one.key: one})
        msg = "power cut"
        raise RuntimeError(msg)


def test_a_transaction_that_fails_leaves_nothing(database: str) -> None:
    with Store.open(database) as store:
        with pytest.raises(RuntimeError, match="power cut"):
            add_and_fail(store)

        assert store.info().configurations == 0
        assert store.sources() == ()


def test_a_run_that_is_known_stays_as_it_is(database: str) -> None:
    with Store.open(database) as store:
        with writing_to(store.engine) as connection:
            add_run(connection, TraceRun(source="a", run="1", kept_lines=((1, "x"),)))
            add_run(connection, TraceRun(source="a", run="1"))
        with reading_from(store.engine) as connection:
            assert [run.kept_lines for run in read_runs(connection)] == [((1, "x"),)]
