"""SeenConfigurations -> ttnn master JSON of the second layout; a configuration from such a file keeps its hash."""

import json
from collections.abc import Iterable
from typing import Any

from torchstone.configs.exchange import Exported
from torchstone.record.config import Configuration, ForeignName, Occurrence, SeenConfiguration, TraceFormat
from torchstone.record.json_value import entry, json_from_value
from torchstone.record.value import Entries

Json = dict[str, Any]

_SAME_LAYOUT = (TraceFormat.TTNN_MASTER_V2, TraceFormat.TTNN_MASTER_V2_DB)


def write_master(seen: Iterable[SeenConfiguration]) -> Exported:
    """A master file of the configurations that came from one; others have no arguments that its readers know."""
    operations: dict[str, list[Json]] = {}
    left_out: dict[str, int] = {}
    models: set[str] = set()
    for one in seen:
        name = _name(one)
        if name is None:
            kind = one.foreign[0].format if one.foreign else f"{one.configuration.op.partition('.')[0]} ops"
            left_out[kind] = left_out.get(kind, 0) + 1
            continue
        models.update(place.source for place in one.occurrences)
        operations.setdefault(name.op or one.configuration.op, []).append(_entry(one, name))
    ordered = {op: {"configurations": sorted(operations[op], key=_order)} for op in sorted(operations)}
    total = sum(map(len, operations.values()))
    metadata = {
        "models": sorted(models),
        "unique_operations": len(operations),
        "total_configurations": total,
        "operations_summary": {op: len(operations[op]) for op in sorted(operations)},
    }
    text = json.dumps({"metadata": metadata, "operations": ordered}, indent=1) + "\n"
    return Exported(text=text, configurations=total, left_out=left_out)


def _name(one: SeenConfiguration) -> ForeignName | None:
    """What the entry is called; one whose hash was verified is the first choice."""
    names = [name for name in one.foreign if name.format in _SAME_LAYOUT and name.hash]
    return min(names, key=lambda name: (not name.rule, name.hash), default=None)


def _entry(one: SeenConfiguration, name: ForeignName) -> Json:
    return {
        **_details(name.details),
        "config_hash": name.hash,
        "arguments": arguments_json(one.configuration),
        "executions": [_execution(place) for place in one.occurrences],
    }


def arguments_json(configuration: Configuration) -> Json:
    """The arguments as they stood in the file."""
    return {argument.name: json_from_value(argument.value) for argument in configuration.arguments}


def _execution(place: Occurrence) -> Json:
    counted = {} if place.count is None else {"count": place.count}
    return {"source": place.source, **_details(place.details), **counted}


def _details(details: Entries | None) -> Json:
    return {} if details is None else dict(json_from_value(details))


def _order(configuration: Json) -> tuple[bool, int, str]:
    number = configuration.get("config_id")
    return not isinstance(number, int), number if isinstance(number, int) else 0, configuration["config_hash"]


def machine_json(one: SeenConfiguration) -> Json:
    """The machine that the hash of a configuration knows: that of the first place that names a board."""
    for place in one.occurrences:
        machine = entry(place.details, "machine_info")
        if entry(machine, "board_type"):
            return dict(json_from_value(machine))
    return dict(json_from_value(one.configuration.machine)) if one.configuration.machine is not None else {}
