"""What a user gives with --db -> the address of a database."""

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from torchstone.errors import InputError, MissingExtraError


def address_of(text: str) -> URL:
    """A path, sqlite:///path or postgresql://user@host/name as an address that an engine takes."""
    if "://" not in text:
        return URL.create("sqlite", database=text)
    try:
        address = make_url(text)
    except (ArgumentError, ValueError) as error:
        msg = f"{without_password(text)} is not the address of a database; give a file, or postgresql://user@host/name"
        raise InputError(msg) from error
    match address.get_backend_name():
        case "sqlite" if address.database:
            return address
        case "postgresql" | "postgres":
            _require_psycopg()
            return address.set(drivername="postgresql+psycopg")
        case kind:
            msg = (
                f"torchstone keeps its database in SQLite or PostgreSQL, not in {kind}; give a file or postgresql://..."
            )
            raise InputError(msg)


def file_of(address: URL) -> Path | None:
    """The file of a SQLite database; None for a server."""
    return Path(address.database) if address.get_backend_name() == "sqlite" and address.database else None


def shown(address: URL) -> str:
    """The address as messages name it: the file, or the URL without its password."""
    path = file_of(address)
    return str(path) if path is not None else address.set(drivername="postgresql").render_as_string(hide_password=True)


def without_password(text: str) -> str:
    """A text that may be a URL, without what stands between the user's name and the host."""
    scheme, separator, rest = text.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{user.partition(':')[0]}{at}{host}"


def _require_psycopg() -> None:
    from importlib.util import find_spec

    if find_spec("psycopg") is None:
        raise MissingExtraError(needed_for="a PostgreSQL database", extra="postgres")
