"""The database in the form of the original design: no schema, no validator, no parameters of the memory templates.

Such a file is read as it is. What the form leaves open is filled with what follows from the rest of an entry. Nothing
counts as validated that names no validator.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from torchstone.record.base import Record
from torchstone.record.formula import (
    CodeLocation,
    FlopAnalysis,
    FormulaDatabase,
    FormulaEntry,
    MemoryAnalysis,
    Status,
    Validation,
)

Json = dict[str, Any]  # a JSON object whose values are not yet looked into

_SCHEMA = "schema"
_NAMED = re.compile(r"\$\{(\w+)\}")
_TEMPLATES = ("reads_template", "writes_template", "intermediates_template", "weights_template")


def from_published(text: bytes, key_of: Callable[[str], str]) -> bytes | None:
    """The document with a schema and complete entries; None where it has a schema, or is something else."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # the reader of entries says what is wrong
        return None
    if not isinstance(document, dict) or _SCHEMA in document:
        return None
    modules = document.get("modules", document)
    if not isinstance(modules, dict) or not modules or not all(_is_entry(one) for one in modules.values()):
        return None
    entries = [_completed(key, one) for key, one in modules.items()]
    keyed = {key_of(str(one["module_path"])): one for one in entries}
    schema = FormulaDatabase.schema
    return msgspec.json.encode({_SCHEMA: f"torchstone/{schema.kind}/{schema.version}", "modules": keyed})


def _is_entry(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("flop_analysis"), dict)


def _completed(key: str, entry: Mapping[str, Any]) -> Json:
    flops = _known_fields(entry["flop_analysis"], FlopAnalysis)
    flops["parameters"] = _names(flops.get("parameters"))
    found: Json = {**_known_fields(entry, FormulaEntry), "flop_analysis": flops}
    found.setdefault("module_path", key.replace("__", "."))
    memory = entry.get("memory_analysis")
    if isinstance(memory, dict):
        found["memory_analysis"] = _memory(memory, flops)
    where = entry.get("code_location")
    if isinstance(where, dict):
        found["code_location"] = _known_fields(where, CodeLocation)
    given = entry.get("validation")
    found["validation"] = _validation(given if isinstance(given, dict) else {})
    return found


def _memory(given: Mapping[str, object], flops: Mapping[str, Any]) -> Json:
    memory = _known_fields(given, MemoryAnalysis)
    named = [name for template in _TEMPLATES for name in _NAMED.findall(str(memory.get(template) or ""))]
    if "parameters" in memory:
        memory["parameters"] = _names(memory["parameters"])
    else:
        memory["parameters"] = list(dict.fromkeys((*flops["parameters"], *named)))
    memory.setdefault("module_depends", flops.get("module_depends", []))
    return memory


def _validation(given: Mapping[str, object]) -> Json:
    """An entry that names no validator was compared with nothing."""
    found = _known_fields(given, Validation)
    known = found.get("status") in [one.value for one in Status] and bool(found.get("validator"))
    return {**found, "status": found["status"] if known else Status.UNCHECKED}


def _known_fields(given: Mapping[str, object], kind: type[Record]) -> Json:
    """The values that a record has a place for; null is the same as not given."""
    return {name: given[name] for name in kind.__struct_fields__ if given.get(name) is not None}


def _names(given: object) -> list[str]:
    """Parameters, listed as names or as objects with a name."""
    listed = given if isinstance(given, list) else []
    return [str(one.get("name", "")) if isinstance(one, dict) else str(one) for one in listed]
