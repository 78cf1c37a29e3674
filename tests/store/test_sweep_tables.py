from sqlalchemy import inspect

from torchstone.store.database import Store
from torchstone.store.tables import sweep_result, sweep_run


def test_the_tables_are_those_that_the_migrations_make(database: str) -> None:
    with Store.open(database) as store:
        found = inspect(store.engine)
        for table in (sweep_run, sweep_result):
            columns = {column["name"] for column in found.get_columns(table.name)}
            assert columns == set(table.columns.keys())
            indexes = {index["name"] for index in found.get_indexes(table.name)}
            assert {index.name for index in table.indexes} <= indexes
