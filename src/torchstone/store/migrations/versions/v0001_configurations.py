"""Configurations, where they were seen, and the runs they come from."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "configuration",
        sa.Column("id", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("key", TEXT, nullable=False, unique=True),
        sa.Column("op", TEXT, nullable=False),
        sa.Column("dtypes", TEXT, nullable=False),
        sa.Column("ranks", TEXT, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.Column("knowledge", TEXT),
        sqlite_strict=True,
    )
    op.create_index("configuration_by_op", "configuration", ["op", "key"])
    op.create_table(
        "trace_run",
        sa.Column("digest", TEXT, primary_key=True),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("run", TEXT, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sqlite_strict=True,
    )
    _create_occurrences()


def _create_occurrences() -> None:
    op.create_table(
        "origin",
        sa.Column("id", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("digest", TEXT, nullable=False, unique=True),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("run", TEXT, nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sqlite_strict=True,
    )
    op.create_table(
        "place",
        sa.Column("id", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("digest", TEXT, nullable=False, unique=True),
        sa.Column("phase", TEXT),
        sa.Column("module_path", TEXT, nullable=False),
        sa.Column("call_site", TEXT, nullable=False),
        sa.Column("details", TEXT),
        sqlite_strict=True,
    )
    op.create_table(
        "occurrence",
        sa.Column("configuration", NUMBER, sa.ForeignKey("configuration.id"), primary_key=True, autoincrement=False),
        sa.Column("origin", NUMBER, sa.ForeignKey("origin.id"), primary_key=True, autoincrement=False),
        sa.Column("place", NUMBER, sa.ForeignKey("place.id"), primary_key=True, autoincrement=False),
        sa.Column("count", NUMBER),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index("occurrence_by_origin", "occurrence", ["origin", "configuration"])


def downgrade() -> None:
    """Drop them again."""
    for table in ("occurrence", "place", "origin", "trace_run", "configuration"):
        op.drop_table(table)
