import sqlite3
from collections.abc import Callable

import pytest

from tests.store.builders import relu
from tests.sweep.builders import mm, result, run, seen
from torchstone.errors import UnreadableFileError
from torchstone.record.check import Outcome
from torchstone.record.vector import Status, SweepRun
from torchstone.store.database import Store
from torchstone.store.sweeps import (
    add_sweep,
    newest_statuses,
    passing_configurations,
    read_sweep,
    sweep_runs,
)

KEY = relu(2).key


def made(name: str, outcome: Outcome, *, backend: str = "eager") -> SweepRun:
    return run(name, result("v", outcome, configuration=KEY), result("w"), backend=backend)


def test_a_run_comes_back_with_its_results(database: str) -> None:
    with Store.open(database) as store:
        add_sweep(store, made("r1", Outcome.WRONG))

        assert read_sweep(store, "r1") == made("r1", Outcome.WRONG)
        assert read_sweep(store, "r2") is None


def test_adding_a_run_again_replaces_it(database: str) -> None:
    with Store.open(database) as store:
        add_sweep(store, run("r1", finished=False))
        add_sweep(store, made("r1", Outcome.PASSED))

        assert [one.run for one in sweep_runs(store)] == ["r1"]
        assert read_sweep(store, "r1") == made("r1", Outcome.PASSED)


def test_a_configuration_passes_when_its_newest_result_on_the_backend_does(database: str) -> None:
    with Store.open(database) as store:
        add_sweep(store, made("r1", Outcome.PASSED))
        assert passing_configurations(store, "eager") == {KEY}
        add_sweep(store, made("r2", Outcome.NOT_RUN))
        assert passing_configurations(store, "eager") == {KEY}
        add_sweep(store, made("r3", Outcome.CRASHED))
        assert passing_configurations(store, "eager") == set()
        add_sweep(store, made("r4", Outcome.PASSED, backend="inductor"))
        assert passing_configurations(store, "eager") == set()


def test_a_configuration_that_was_not_run_has_no_status(database: str) -> None:
    with Store.open(database) as store:
        assert newest_statuses(store, "eager") == {}
        add_sweep(store, made("r1", Outcome.CRASHED))
        add_sweep(store, made("r2", Outcome.NOT_RUN))

        assert newest_statuses(store, "eager") == {KEY: Status.FAIL_CRASH_HANG}


@pytest.mark.parametrize(
    ("damage", "ask"),
    [
        ("UPDATE place SET phase = 'sideways'", lambda store: list(store.configurations())),
        ("UPDATE sweep_result SET status = 'perhaps'", lambda store: newest_statuses(store, "eager")),
        ("UPDATE configuration SET body = 'no JSON'", lambda store: list(store.configurations())),
        ("UPDATE sweep_run SET body = '[]'", sweep_runs),
    ],
)
def test_a_word_that_no_version_writes_is_damage(sqlite_file: str, damage: str, ask: Callable[[Store], object]) -> None:
    with Store.open(sqlite_file) as store:
        store.add([seen(mm())])
        add_sweep(store, made("r1", Outcome.PASSED))
    with sqlite3.connect(sqlite_file) as connection:
        connection.execute(damage)
    connection.close()

    with (
        Store.open(sqlite_file, create=False) as store,
        pytest.raises(UnreadableFileError, match=r"torchstone\.db is damaged"),
    ):
        ask(store)


def test_configurations_stay_when_the_tables_of_sweeps_are_added(database: str) -> None:
    with Store.open(database) as store:
        add_sweep(store, run("r1"))

        assert store.info().configurations == 0
