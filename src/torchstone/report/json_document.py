"""A record -> the JSON document that a command prints with --json."""

from collections.abc import Mapping

import msgspec

from torchstone.record.base import Record


def json_document(schema: str, *parts: Record | Mapping[str, object]) -> bytes:
    """One document: its schema first, then the fields of each part."""
    fields: dict[str, object] = {"schema": schema}
    for part in parts:
        fields |= msgspec.to_builtins(part)
    return msgspec.json.encode(fields)


def indented(document: bytes) -> bytes:
    """The same document, one value on each line."""
    return msgspec.json.format(document, indent=1)
