import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from errno import ENOSPC
from pathlib import Path

import msgspec
import pytest

from tests.store.builders import at, relu, seen
from torchstone.errors import InputError
from torchstone.record.config import SeenConfiguration, TraceFormat, TraceRun
from torchstone.store.database import Store
from torchstone.workflows.configs import ImportRequest, import_files, merge_databases, read_contents

OLD, NEW = "20260101T000000-aaaaaaaa", "20260202T000000-bbbbbbbb"
LOG = "Operator: aten.relu.default\ncnt: {count}, ((T([{size}], f32),), {{}})\n"


def trace(run: str, *sizes: int, source: str = "t.py::test") -> tuple[list[SeenConfiguration], list[TraceRun]]:
    calls = [seen(relu(size), at(source=source, run=run, count=4)) for size in sizes]
    return calls, [TraceRun(source=source, run=run)]


def add(store: Store, calls: Iterable[SeenConfiguration], runs: list[TraceRun]) -> None:
    store.add(calls, runs=runs)


def test_tracing_again_replaces_the_calls(database: str) -> None:
    with Store.open(database) as store:
        add(store, *trace(OLD, 2, 3))
        add(store, *trace(NEW, 3, 5))

        assert store.info().calls == 8
        assert [run.run for run in store.runs()] == [NEW]
        assert store.info().configurations == 2
        assert not store.faults()


@pytest.mark.parametrize("order", [(OLD, NEW), (NEW, OLD)])
def test_the_newest_trace_stays_whichever_was_added_last(database: str, order: tuple[str, str]) -> None:
    with Store.open(database) as store:
        for run in order:
            add(store, *trace(run, 2 if run == OLD else 7))

        assert [one.configuration for one in store.configurations()] == [relu(7)]


def test_other_sources_of_the_same_run_are_not_touched(database: str) -> None:
    with Store.open(database) as store:
        add(store, *trace(OLD, 2))
        add(store, *trace(OLD, 2, 3, source="t.py::other"))
        add(store, *trace(NEW, 9))

        assert store.info().calls == 4 + 8
        assert store.sources() == ("t.py::other", "t.py::test")


def test_a_master_file_keeps_the_executions_of_all_its_sources(database: str) -> None:
    runs = [TraceRun(source="m.json", run=run, format=TraceFormat.TTNN_MASTER_V2) for run in "ab"]
    with Store.open(database) as store:
        for run in runs:
            store.add([seen(relu(2), at(source="m.json", run=run.run, count=1))], runs=[run], replaces=True)

        assert store.info().calls == 2


def test_what_a_trace_that_broke_off_had_added_is_not_counted_beside_the_next_one(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(calls: list[SeenConfiguration]) -> Iterator[SeenConfiguration]:
        yield from calls
        raise OSError(ENOSPC, "no space left on device")

    monkeypatch.setattr("torchstone.store.rows.CHUNK", 1)
    with Store.open(database) as store:
        calls, runs = trace(OLD, 2, 3, 4)
        with pytest.raises(OSError, match="no space"):
            add(store, broken_off(calls), runs)
        assert store.info().calls > 0  # whole chunks
        assert store.runs() == ()  # and no run that looks complete

        add(store, *trace(NEW, 3, 5))

        assert (store.info().calls, store.info().configurations) == (8, 2)
        assert not store.faults()


def test_a_small_trace_that_cannot_be_stored_leaves_the_older_one(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with Store.open(str(path)) as store:
        add(store, *trace(OLD, 2, 3))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("create trigger full before insert on trace_run begin select raise(abort, 'full'); end")
        with pytest.raises(InputError):
            add(store, *trace(NEW, 3, 5))

        assert [run.run for run in store.runs()] == [OLD]
        assert (store.info().calls, store.info().configurations) == (8, 2)


def imported(tmp_path: Path, path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    list(import_files(ImportRequest(paths=(path,), database=str(tmp_path / "x.db"))))


def test_files_of_one_name_in_two_folders_are_two_sources_and_a_changed_file_replaces_itself(tmp_path: Path) -> None:
    for folder, count in (("a", 3), ("b", 5), ("a", 4), ("a", 4)):
        imported(tmp_path, tmp_path / folder / "bert.txt", LOG.format(count=count, size=count))

    found = read_contents(str(tmp_path / "x.db"))

    assert (found.info.sources, found.info.calls, found.info.configurations) == (2, 4 + 5, 2)


def test_merging_two_traces_of_one_test_gives_the_same_in_either_order(tmp_path: Path) -> None:
    for name, run in (("old", OLD), ("new", NEW)):
        with Store.open(str(tmp_path / f"{name}.db")) as store:
            add(store, *trace(run, 2 if run == OLD else 7))
    results = []
    for order in (("old", "new"), ("new", "old"), ("old", "new", "old")):
        target = str(tmp_path / f"{'-'.join(order)}.db")
        list(merge_databases([str(tmp_path / f"{name}.db") for name in order], target))
        with Store.open(target) as store:
            results.append(msgspec.json.encode([list(store.configurations()), store.runs()]))

    assert len(set(results)) == 1
