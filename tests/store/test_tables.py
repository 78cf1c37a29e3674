from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from torchstone.store.database import Store
from torchstone.store.engine import VERSION_TABLE, reading_from
from torchstone.store.tables import sweep_result, sweep_run

metadata = sweep_run.metadata  # of all tables: those of sweeps stand beside them


def test_the_steps_lead_to_the_tables_of_today(database: str) -> None:
    with Store.open(database) as store, reading_from(store.engine) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})

        assert compare_metadata(context, metadata) == []


def test_every_table_is_there(database: str) -> None:
    with Store.open(database) as store, reading_from(store.engine) as connection:
        assert set(inspect(connection).get_table_names()) == {*metadata.tables, VERSION_TABLE}


def test_sqlite_refuses_values_of_the_wrong_type(sqlite_file: str) -> None:
    with Store.open(sqlite_file) as store, reading_from(store.engine) as connection:
        made = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = 'configuration'").scalar_one()

        assert made.rstrip().endswith("STRICT")


def test_the_tables_are_those_that_the_migrations_make(database: str) -> None:
    with Store.open(database) as store:
        found = inspect(store.engine)
        for table in (sweep_run, sweep_result):
            columns = {column["name"] for column in found.get_columns(table.name)}
            assert columns == set(table.columns.keys())
            indexes = {index["name"] for index in found.get_indexes(table.name)}
            assert {index.name for index in table.indexes} <= indexes
