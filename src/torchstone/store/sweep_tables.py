"""The tables of sweeps as of today: the record as JSON is the truth, the other columns are projections for queries."""

from sqlalchemy import Column, ForeignKey, Index, Table, Text

from torchstone.store.tables import metadata

TEXT = Text().with_variant(Text(collation="C"), "postgresql")

sweep_run = Table(
    "sweep_run",
    metadata,
    Column("run", TEXT, primary_key=True),
    Column("backend", TEXT, nullable=False),
    Column("started", TEXT, nullable=False),
    Column("body", TEXT, nullable=False),  # the SweepRun as JSON, without results
    sqlite_strict=True,
)

sweep_result = Table(
    "sweep_result",
    metadata,
    Column("run", TEXT, ForeignKey("sweep_run.run"), primary_key=True),
    Column("vector", TEXT, primary_key=True),
    Column("op", TEXT, nullable=False),
    Column("configuration", TEXT),  # NULL: of a sweep module
    Column("status", TEXT, nullable=False),
    Column("outcome", TEXT, nullable=False),
    Column("body", TEXT, nullable=False),  # the VectorResult as JSON
    Index("sweep_result_by_vector", "vector", "run"),
    Index("sweep_result_by_configuration", "configuration", "status"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
