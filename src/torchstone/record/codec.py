"""Records to and from JSON files; every document names its schema and version."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from torchstone.errors import NewerSchemaError, UnreadableFileError
from torchstone.record.base import PREFIX, Document, Record, Schema
from torchstone.record.files import encodable, problem_of, read_file, shortened
from torchstone.temporary import replacing

D = TypeVar("D", bound=Document)
R = TypeVar("R", bound=Record)
T = TypeVar("T")
JsonObject = dict[str, object]
Upgrade = Callable[[JsonObject], JsonObject]

_VERSION = re.compile(r"[1-9][0-9]{0,8}")


class _Head(Record, frozen=True, kw_only=True):
    schema: str = ""


Upgrades = Mapping[tuple[str, int], Upgrade]


def _trace_from_1(document: JsonObject) -> JsonObject:
    """Version 1 wrote every copy out: its tables are complete and `repeats` is empty; `copies` is no longer read."""
    return document


_UPGRADES: Upgrades = {("trace", 1): _trace_from_1}  # (kind, old version) -> to the next version


def encode(record: Document) -> bytes:
    """A record as a JSON document, its schema first."""
    try:
        body = msgspec.json.encode(record)
    except UnicodeEncodeError:
        body = msgspec.json.encode(encodable(msgspec.to_builtins(record, str_keys=True)))
    return b'{"schema":' + msgspec.json.encode(record.schema.name) + (b"," if body != b"{}" else b"") + body[1:]


def decode(text: bytes, record_type: type[D], *, origin: str) -> D:
    """A consistent record from a JSON document; origin names it in errors."""
    record = decode_as(text, record_type, record_type.schema, upgrades=_UPGRADES, origin=origin)
    try:
        record.check()
    except ValueError as error:
        msg = f"{origin} is not a consistent {record_type.schema.kind} file ({shortened(error)}); make it again"
        raise UnreadableFileError(msg) from error
    return record


def decode_as(text: bytes, record_type: type[R], schema: Schema, *, upgrades: Upgrades, origin: str) -> R:
    """A record from a JSON document of this schema, or of an older version that the upgrades lead up from."""
    try:
        head = msgspec.json.decode(text, type=_Head)
        version = read_version(head.schema, schema.kind, newest=schema.version, origin=origin)
        if version == schema.version:
            record = msgspec.json.decode(text, type=record_type)
        else:
            document = msgspec.json.decode(text)
            for old in range(version, schema.version):
                document = upgrades[schema.kind, old](document)
            record = msgspec.convert(document, record_type, str_keys=True)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{origin} is not a readable {schema.kind} file ({shortened(error)}); make it again"
        raise UnreadableFileError(msg) from error
    if problem := problem_of(text):
        msg = f"{origin} is not a readable {schema.kind} file: {problem}"
        raise UnreadableFileError(msg)
    return record


def read_version(name: str, kind: str, *, newest: int, origin: str) -> int:
    """The version in a document's schema name; a newer one, or another kind, is refused."""
    prefix, _, digits = name.rpartition("/")
    if prefix != f"{PREFIX}/{kind}" or not _VERSION.fullmatch(digits):
        found = f"its schema is {name[:80]!r}" if name else "it names no schema"
        msg = f"{origin} is not a torchstone {kind} file: {found}"
        raise UnreadableFileError(msg)
    if int(digits) > newest:
        msg = f"{origin} was written by a newer torchstone ({name}, this one reads up to {newest}); upgrade torchstone"
        raise NewerSchemaError(msg)
    return int(digits)


def load(path: Path, record_type: type[D]) -> D:
    """Read a record from a file."""
    return decode(read_file(path), record_type, origin=str(path))


def load_kept(path: Path, kind: type[T]) -> T | None:
    """What an earlier run kept for later ones to be faster; None where it is missing, damaged or of another version."""
    try:
        return msgspec.json.decode(read_file(path), type=kind)
    except (UnreadableFileError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def save(path: Path, record: Document) -> None:
    """Write a record to a file."""
    write_atomically(path, encode(record) + b"\n")


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file as a whole: a reader sees the old one or the new one, never a part."""
    with replacing(path) as file:
        file.write(content)
