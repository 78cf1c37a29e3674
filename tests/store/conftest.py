"""Each test of the store runs on a SQLite file and on a database of a real PostgreSQL."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.store.postgres import running_server

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """A database of its own for each test."""
    import psycopg

    name = f"test{next(_NUMBERS)}"
    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{postgres_server}/{name}"


@pytest.fixture
def sqlite_file(tmp_path: Path) -> str:
    return str(tmp_path / "torchstone.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The address of an empty database."""
    return str(request.getfixturevalue("sqlite_file" if request.param == "sqlite" else "postgres_url"))
