"""ttnn master JSON, from its first layout to the one rebuilt from a database -> SeenConfigurations."""

import re
from collections.abc import Iterator
from typing import Any

from torchstone.configs.exchange import Imported, Unread, bound, counted
from torchstone.configs.ttnn_hash import RULES, verified_rule
from torchstone.configs.ttnn_repair import UNPARSED, repaired_argument, unrecorded
from torchstone.record.config import (
    Configuration,
    Damage,
    ForeignName,
    Occurrence,
    SeenConfiguration,
    TraceFormat,
    TraceRun,
)
from torchstone.record.json_value import entries_from_json, value_from_json
from torchstone.record.value import Argument, Entries

Json = dict[str, Any]

_MODEL = re.compile(r"\[(?:HF_MODEL|LLAMA_DIR):(?P<name>[^\]]+)\]")
_MACHINE = ("board_type", "device_series", "card_count", "mesh_device_shape")
_ENTRY_KEYS = {"arguments", "config_hash", "executions", "source", "machine_info", "contexts"}
_CONTENT = "content"  # the list of calls in the earliest files
_EXECUTION_KEYS = {"source", "count"}


def is_master(document: Any) -> bool:
    """Whether a JSON document looks like a master file, or like a list of traced operations."""
    if not isinstance(document, dict):
        return False
    return isinstance(document.get("operations"), dict) or isinstance(document.get("content"), list)


def read_master(document: Json, *, source: str, run: str) -> Imported:
    """The configurations of a master file; `source` stands in where the file names none."""
    seen: list[SeenConfiguration] = []
    calls: list[SeenConfiguration] = []  # one entry for each call, not for each configuration
    unread: list[Unread] = []
    formats: set[TraceFormat] = set()
    for op, entry, where in _entries(document):
        if not (isinstance(entry, dict) and isinstance(entry.get("arguments"), list | dict)):
            unread.append(Unread(where=where, reason="it has no arguments"))
            continue
        form = _format_of(entry)
        formats.add(form)
        (calls if where.startswith(_CONTENT) else seen).append(_seen(op, entry, form=form, source=source))
    metadata = document.get("metadata")
    details = entries_from_json(metadata) if isinstance(metadata, dict) else None
    newest = max(formats, key=list(TraceFormat).index, default=TraceFormat.TTNN_MASTER_V0)
    trace_run = TraceRun(source=source, run=run, format=newest, details=details)
    return Imported(runs=(trace_run,), seen=(*seen, *counted(calls)), unread=tuple(unread))


def _entries(document: Json) -> Iterator[tuple[str, Any, str]]:
    """Each op and entry, whichever way the file nests them, and where it stands."""
    for number, call in enumerate(_listed(document.get("content"))):
        op = call.get("operation") if isinstance(call, dict) else None
        yield str(op), {"arguments": call.get("arguments")} if isinstance(call, dict) else call, f"{_CONTENT} {number}"
    operations = document.get("operations")
    for op, content in (operations if isinstance(operations, dict) else {}).items():
        listed = content.get("configurations") if isinstance(content, dict) else content
        if not isinstance(listed, list):
            yield op, None, f"{op}, configurations"
            continue
        for number, entry in enumerate(listed):
            yield op, {"arguments": entry} if isinstance(entry, list) else entry, f"{op}, configuration {number}"


def _format_of(entry: Json) -> TraceFormat:
    if isinstance(entry["arguments"], dict):
        executions = entry.get("executions")
        rebuilt = isinstance(executions, list) and any(
            isinstance(one, dict) and "trace_run_ids" in one for one in executions
        )
        return TraceFormat.TTNN_MASTER_V2_DB if rebuilt else TraceFormat.TTNN_MASTER_V2
    if "contexts" in entry or "machine_info" in entry or isinstance(entry.get("source"), list):
        return TraceFormat.TTNN_MASTER_V1_5
    return TraceFormat.TTNN_MASTER_V1 if "source" in entry else TraceFormat.TTNN_MASTER_V0


def _seen(op: str, entry: Json, *, form: TraceFormat, source: str) -> SeenConfiguration:
    arguments, damage = _arguments(entry["arguments"])
    executions = list(_executions(entry, source=source))
    machine: Json = next((one["machine_info"] for one in executions if _names_board(one.get("machine_info"))), {})
    bound_to = {key: machine[key] for key in _MACHINE if machine.get(key) is not None}
    if "mesh_device_shape" not in bound_to and machine.get("device_count") is not None:
        bound_to["device_count"] = machine["device_count"]
    configuration = Configuration(
        op=op.replace("::", "."), arguments=arguments, machine=entries_from_json(bound_to) if bound_to else None
    )
    return SeenConfiguration(
        configuration=configuration,
        occurrences=tuple(_occurrence(one) for one in executions),
        foreign=(_foreign(op, entry, machine, form),),
        damage=damage,
    )


def _arguments(given: list[Any] | Json) -> tuple[tuple[Argument, ...], tuple[Damage, ...]]:
    arguments: list[Argument] = []
    damage: list[Damage | None] = []
    if isinstance(given, dict):
        arguments = [bound(name, value_from_json(value)) for name, value in given.items()]
        arguments.sort(key=lambda one: (one.position is None, one.position or 0, one.name))
    for position, element in enumerate(given if isinstance(given, list) else ()):
        named = element if isinstance(element, dict) and len(element) == 1 else {f"arg{position}": element}
        ((name, value),) = named.items()
        if name == UNPARSED:
            argument, broken = repaired_argument(value, position=position)
            damage.append(broken)
        else:
            argument = bound(name, value_from_json(value))
            damage.append(unrecorded(argument))
        arguments.append(argument)
    return tuple(arguments), tuple(one for one in damage if one is not None)


def _executions(entry: Json, *, source: str) -> Iterator[Json]:
    """Where it was seen, in the newest layout, from whichever one the entry has."""
    if isinstance(entry.get("executions"), list):
        yield from (one for one in entry["executions"] if isinstance(one, dict))
        return
    contexts = [context for context in _listed(entry.get("contexts")) if isinstance(context, dict)]
    for context in contexts or [entry]:
        sources = _listed(context.get("source")) or [source]
        machines = _listed(context.get("machine_info")) or [None]
        for place, name in enumerate(sources):
            machine = machines[place] if len(machines) == len(sources) else machines[0]
            known = {"machine_info": machine} if machine is not None else {}
            yield {"source": str(name), **known}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _names_board(machine: Any) -> bool:
    return isinstance(machine, dict) and bool(machine.get("board_type"))


def _occurrence(execution: Json) -> Occurrence:
    source, count = str(execution.get("source") or ""), execution.get("count")
    runs = execution.get("trace_uid") or ",".join(map(str, _listed(execution.get("trace_run_ids"))))
    rest = {key: value for key, value in execution.items() if key not in _EXECUTION_KEYS}
    return Occurrence(
        source=source,
        run=str(runs),
        model=model_of(source),
        details=entries_from_json(rest) if rest else None,
        count=count if isinstance(count, int) and not isinstance(count, bool) else None,
    )


def model_of(source: str) -> str:
    """The model that a source text names, or else the test or script itself."""
    found = _MODEL.search(source)
    return found["name"].strip() if found else source.partition(" [")[0]


def _foreign(op: str, entry: Json, machine: Json, form: TraceFormat) -> ForeignName:
    given = entry.get("config_hash")
    rest: Entries | None = None
    if kept := {key: value for key, value in entry.items() if key not in _ENTRY_KEYS}:
        rest = entries_from_json(kept)
    if not isinstance(given, str):
        return ForeignName(format=form, op=op, details=rest)
    rule = verified_rule(given, op, entry["arguments"], machine, RULES)
    return ForeignName(format=form, hash=given, rule=rule.name if rule else "", op=op, details=rest)
