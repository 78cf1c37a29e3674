from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import inspect

from torchstone.store.engine import address_of, engine_for, writing_to
from torchstone.store.migrations.versions import v0001_configurations

TABLES = {"configuration", "occurrence", "origin", "place", "trace_run"}


def test_it_makes_the_first_tables_and_takes_them_away_again(database: str) -> None:
    engine = engine_for(address_of(database))
    with writing_to(engine) as connection, Operations.context(MigrationContext.configure(connection)):
        v0001_configurations.upgrade()
        assert set(inspect(connection).get_table_names()) == TABLES

        v0001_configurations.downgrade()
        assert inspect(connection).get_table_names() == []
    engine.dispose()


def test_it_is_the_first_step() -> None:
    assert v0001_configurations.down_revision is None
