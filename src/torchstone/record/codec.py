"""Records to and from JSON files; every document names its schema and version."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

import msgspec

from torchstone.errors import NewerSchemaError, UnreadableFileError
from torchstone.record.base import Record
from torchstone.record.cost import CostTable
from torchstone.record.trace import Trace
from torchstone.record.unique import UniqueModules

R = TypeVar("R", bound=Record)
Document = dict[str, Any]
Upgrade = Callable[[Document], Document]

_PREFIX = "torchstone"


class Schema(Record, frozen=True, kw_only=True):
    """The name and newest version of one kind of document."""

    kind: str
    version: int

    @property
    def name(self) -> str:
        """As it stands in the document: torchstone/trace/1."""
        return f"{_PREFIX}/{self.kind}/{self.version}"


class _Head(Record, frozen=True, kw_only=True):
    schema: str = ""


_SCHEMA_OF: Mapping[type[Record], Schema] = {
    CostTable: Schema(kind="cost", version=1),
    Trace: Schema(kind="trace", version=1),
    UniqueModules: Schema(kind="unique_modules", version=1),
}
_UPGRADES: Mapping[tuple[str, int], Upgrade] = {}  # (kind, old version) -> to the next version


def encode(record: Record) -> bytes:
    """A record as a JSON document, its schema first."""
    schema = _SCHEMA_OF[type(record)]
    body = msgspec.json.encode(record)
    return b'{"schema":' + msgspec.json.encode(schema.name) + (b"," if body != b"{}" else b"") + body[1:]


def decode(text: bytes, record_type: type[R], *, origin: str) -> R:
    """A record from a JSON document; origin names it in errors."""
    schema = _SCHEMA_OF[record_type]
    try:
        head = msgspec.json.decode(text, type=_Head)
        version = read_version(head.schema, schema.kind, newest=schema.version, origin=origin)
        if version == schema.version:
            return msgspec.json.decode(text, type=record_type)
        document = msgspec.json.decode(text)
        while version < schema.version:
            document = _UPGRADES[schema.kind, version](document)
            version += 1
        return msgspec.convert(document, record_type, str_keys=True)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        msg = f"{origin} is not a readable {schema.kind} file ({error}); make it again"
        raise UnreadableFileError(msg) from error


def read_version(name: str, kind: str, *, newest: int, origin: str) -> int:
    """The version in a document's schema name; a newer one, or another kind, is refused."""
    prefix, _, version = name.rpartition("/")
    if prefix != f"{_PREFIX}/{kind}" or not version.isdecimal():
        found = f"its schema is {name!r}" if name else "it names no schema"
        msg = f"{origin} is not a torchstone {kind} file: {found}"
        raise UnreadableFileError(msg)
    if int(version) > newest:
        msg = f"{origin} was written by a newer torchstone ({name}, this one reads up to {newest}); upgrade torchstone"
        raise NewerSchemaError(msg)
    return int(version)


def load(path: Path, record_type: type[R]) -> R:
    """Read a record from a file."""
    try:
        text = path.read_bytes()
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror or error}"
        raise UnreadableFileError(msg) from error
    return decode(text, record_type, origin=str(path))


def save(path: Path, record: Record) -> None:
    """Write a record to a file."""
    write_atomically(path, encode(record) + b"\n")


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file as a whole: a reader sees the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    Path(file.name).chmod(0o666 & ~_umask())
    Path(file.name).replace(path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
