import pytest
from sqlalchemy import text

from tests.store.builders import at, relu, seen
from torchstone.record.config import TensorFacts
from torchstone.store.database import Store
from torchstone.store.engine import writing_to


def broken(database: str, *commands: str) -> list[str]:
    """The faults of a small database after another program wrote to it."""
    with Store.open(database) as store:
        store.add([seen(relu(2), at(), facts=(TensorFacts(tensor=0, lowest=1),)), seen(relu(3))])
        with writing_to(store.engine) as connection:
            for command in commands:
                connection.execute(text(command))
        return [fault.reason for fault in store.faults()]


def test_a_database_of_ours_has_no_faults(database: str) -> None:
    assert broken(database) == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("UPDATE configuration SET op = 'x' WHERE id = 1", "its op does not match"),
        ("UPDATE configuration SET dtypes = '' WHERE id = 1", "its dtypes does not match"),
        ("UPDATE configuration SET key = 'k1-0' WHERE id = 1", "its key does not match"),
        ("UPDATE configuration SET body = '{' WHERE id = 1", "cannot be read"),
        ("UPDATE configuration SET knowledge = '5' WHERE id = 1", "cannot be read"),
        ("UPDATE occurrence SET count = -4", "1 counts are negative"),
    ],
)
def test_a_change_by_another_program_is_found(database: str, command: str, reason: str) -> None:
    (fault,) = broken(database, command)

    assert reason in fault


def test_an_occurrence_without_its_configuration_is_found(sqlite_file: str) -> None:
    with Store.open(sqlite_file) as store:
        store.add([seen(relu(2), at())])
        with store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
            connection.exec_driver_sql("DELETE FROM place")

        assert [fault.reason for fault in store.faults()] == ["1 row refers to a missing place"]
