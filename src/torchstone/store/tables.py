"""The current tables; `migrations/` upgrades every older database to them.

The canonical JSON of a configuration (`body`) is authoritative; `op`, `dtypes` and `ranks` are projections of it for
queries. An occurrence is three numbers and a count: its source, run and model (an origin) and its phase, module path
and call site (a place) are stored once each, found by the digest of their text.
"""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, Table, Text

# --- Configurations ---


NUMBER = BigInteger().with_variant(Integer(), "sqlite")  # SQLite's INTEGER has 64 bits, PostgreSQL's has 32
TEXT = Text().with_variant(Text(collation="C"), "postgresql")  # by code point everywhere: the same order in every place

OPS_BY_ID = "configuration_op_by_id"

metadata = MetaData()

configuration = Table(
    "configuration",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=False),
    Column("key", TEXT, nullable=False, unique=True),  # config_key()
    Column("op", TEXT, nullable=False),
    Column("dtypes", TEXT, nullable=False),  # ",float32,int64,": each once
    Column("ranks", TEXT, nullable=False),  # ",2,4,": each once
    Column("body", TEXT, nullable=False),  # the Configuration as JSON
    Column("knowledge", TEXT),  # facts, foreign names and damage as JSON; NULL: none
    Index("configuration_by_op", "op", "key"),
    Index(OPS_BY_ID, "id", "op"),  # all ops are counted without reading the wide rows
    sqlite_strict=True,
)

trace_run = Table(
    "trace_run",
    metadata,
    Column("digest", TEXT, primary_key=True),  # of source and run
    Column("source", TEXT, nullable=False),
    Column("run", TEXT, nullable=False),
    Column("body", TEXT, nullable=False),  # the TraceRun as JSON
    sqlite_strict=True,
)

origin = Table(
    "origin",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=False),
    Column("digest", TEXT, nullable=False, unique=True),
    Column("source", TEXT, nullable=False),
    Column("run", TEXT, nullable=False),
    Column("model", TEXT, nullable=False),
    sqlite_strict=True,
)

place = Table(
    "place",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=False),
    Column("digest", TEXT, nullable=False, unique=True),
    Column("phase", TEXT),
    Column("module_path", TEXT, nullable=False),
    Column("call_site", TEXT, nullable=False),
    Column("details", TEXT),  # Entries as JSON
    sqlite_strict=True,
)

occurrence = Table(
    "occurrence",
    metadata,
    Column("configuration", NUMBER, ForeignKey("configuration.id"), primary_key=True, autoincrement=False),
    Column("origin", NUMBER, ForeignKey("origin.id"), primary_key=True, autoincrement=False),
    Column("place", NUMBER, ForeignKey("place.id"), primary_key=True, autoincrement=False),
    Column("count", NUMBER),  # NULL: not counted
    Index("occurrence_by_origin", "origin", "configuration"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)


# --- Sweeps: the record as JSON is authoritative, the other columns are projections for queries ---


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
