from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import inspect

from torchstone.store.engine import address_of, engine_for, writing_to
from torchstone.store.migrations.versions import v0001_configurations, v0002_sweeps

TABLES = {"sweep_run", "sweep_result"}


def test_it_adds_the_tables_of_sweeps_and_takes_them_away_again(database: str) -> None:
    engine = engine_for(address_of(database))
    with writing_to(engine) as connection, Operations.context(MigrationContext.configure(connection)):
        v0001_configurations.upgrade()
        before = set(inspect(connection).get_table_names())
        v0002_sweeps.upgrade()
        assert set(inspect(connection).get_table_names()) == before | TABLES

        v0002_sweeps.downgrade()
        assert set(inspect(connection).get_table_names()) == before
    engine.dispose()


def test_it_follows_the_first_step() -> None:
    assert v0002_sweeps.down_revision == v0001_configurations.revision
