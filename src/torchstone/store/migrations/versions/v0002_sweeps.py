"""Sweep runs and how each vector ended in them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the tables of sweeps."""
    op.create_table(
        "sweep_run",
        sa.Column("run", TEXT, primary_key=True),
        sa.Column("backend", TEXT, nullable=False),
        sa.Column("started", TEXT, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sqlite_strict=True,
    )
    op.create_table(
        "sweep_result",
        sa.Column("run", TEXT, sa.ForeignKey("sweep_run.run"), primary_key=True),
        sa.Column("vector", TEXT, primary_key=True),
        sa.Column("op", TEXT, nullable=False),
        sa.Column("configuration", TEXT),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("outcome", TEXT, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index("sweep_result_by_vector", "sweep_result", ["vector", "run"])
    op.create_index("sweep_result_by_configuration", "sweep_result", ["configuration", "status"])


def downgrade() -> None:
    """Drop them again."""
    for table in ("sweep_result", "sweep_run"):
        op.drop_table(table)
