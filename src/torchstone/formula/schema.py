"""The database's own description, for programs that read or write it without torchstone."""

from typing import Any

import msgspec

from torchstone.record.formula import FormulaDatabase

SCHEMA_NAME = "torchstone/module_db/1"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def database_schema() -> dict[str, Any]:
    """The JSON Schema of module_db.json, made from the records."""
    schema = msgspec.json.schema(FormulaDatabase)
    root = schema["$defs"]["FormulaDatabase"]
    root["properties"] = {"schema": {"const": SCHEMA_NAME}, **root["properties"]}
    root["required"] = ["schema", *root["required"]]
    whole = {"$schema": _DIALECT, "title": "torchstone module_db.json", **schema}
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(whole))
    return found
