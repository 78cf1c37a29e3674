from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, inspect

from torchstone.store.engine import address_of, engine_for, writing_to
from torchstone.store.migrations.versions import v0001_configurations, v0002_sweeps, v0003_ops_by_id
from torchstone.store.tables import OPS_BY_ID


def indexes(connection: Connection) -> set[str | None]:
    return {one["name"] for one in inspect(connection).get_indexes("configuration")}


def test_it_adds_an_index_and_takes_it_away_again(database: str) -> None:
    engine = engine_for(address_of(database))
    with writing_to(engine) as connection, Operations.context(MigrationContext.configure(connection)):
        v0001_configurations.upgrade()
        before = indexes(connection)
        v0003_ops_by_id.upgrade()
        assert indexes(connection) == before | {OPS_BY_ID}

        v0003_ops_by_id.downgrade()
        assert indexes(connection) == before
    engine.dispose()


def test_it_follows_the_second_step() -> None:
    assert v0003_ops_by_id.down_revision == v0002_sweeps.revision
