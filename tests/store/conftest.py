"""Each test of the store runs on a SQLite file and on a real PostgreSQL."""

from pathlib import Path

import pytest


@pytest.fixture
def sqlite_file(tmp_path: Path) -> str:
    return str(tmp_path / "torchstone.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The address of an empty database."""
    return str(request.getfixturevalue("sqlite_file" if request.param == "sqlite" else "postgres_url"))
