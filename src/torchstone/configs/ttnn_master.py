"""ttnn master JSON of every version -> configurations, with broken elements repaired and its hashes recomputed."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import combinations
from typing import TypeGuard

from torchstone.backends.ttnn_trace_text import UNPARSED, as_list, element_of, executions_of, not_recorded, repair
from torchstone.configs.exchange import Imported, JsonObject, Unread, argument_order, count_calls, named_argument
from torchstone.record.base import Record
from torchstone.record.config import (
    Configuration,
    Damage,
    ForeignName,
    Occurrence,
    SeenConfiguration,
    TraceFormat,
    TraceRun,
)
from torchstone.record.value import Argument, Entries, Opaque, Value, entries_from_json, value_from_json

# --- `config_hash`: the rules that computed it over time, and which one reproduces a given hash ---
#
# All rules hash the JSON of operation, arguments, hardware and mesh. They differ in how the arguments are rewritten
# first, and in whether the mesh counts. A file does not say which rule it follows, so all of them are tried.


Step = Callable[[object], object]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SHAPE = re.compile(r"Shape\(\[(?P<sizes>(?:-?[0-9]{1,18}, ?)*(?:-?[0-9]{1,18})?)\]\)")
_NOT_FINITE = ("inf", "-inf", "nan")


class HashRule(Record, frozen=True, kw_only=True):
    """One way to compute the hash; a database stores `name` beside a hash that it verified."""

    name: str
    steps: tuple[Step, ...] = ()
    with_mesh: bool = False

    def hash(self, operation: str, arguments: object, machine: JsonObject) -> str:
        """The hash of one configuration."""
        for step in self.steps:
            arguments = _everywhere(arguments, step)
        content = {
            "operation": operation,
            "arguments": arguments,
            "hardware": hardware_of(machine),
            "mesh": mesh_of(machine) if self.with_mesh else None,
        }
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def hardware_of(machine: JsonObject) -> list[object] | None:
    """The part of the machine that is hashed; None where the file does not name the board."""
    if not machine.get("board_type"):
        return None
    series = machine.get("device_series")
    first = (series[0] if series else None) if isinstance(series, list) else series
    return [machine["board_type"], first, machine.get("card_count") or 1]


def mesh_of(machine: JsonObject) -> JsonObject | None:
    """The part of the mesh that the newest rule hashes."""
    shape, count = machine.get("mesh_device_shape"), machine.get("device_count")
    if shape:
        return {"mesh_shape": shape, "placement_type": None, "shard_dim": None}
    if count:
        return {"mesh_shape": None, "device_count": count, "placement_type": None, "shard_dim": None}
    return None


def verified_rule(
    foreign_hash: str, operation: str, arguments: object, machine: JsonObject, rules: Sequence[HashRule]
) -> HashRule | None:
    """The first rule that reproduces the hash; None if none does."""
    return next((rule for rule in rules if rule.hash(operation, arguments, machine) == foreign_hash), None)


def _everywhere(value: object, step: Step) -> object:
    """A copy with a step applied to each object and scalar, the innermost first."""
    if isinstance(value, dict):
        return step({key: _everywhere(item, step) for key, item in value.items()})
    if isinstance(value, list):
        return [_everywhere(item, step) for item in value]
    return step(value)


def _infinity_as_number(value: object) -> object:
    return float(value) if isinstance(value, str) and value in _NOT_FINITE else value


def _infinity_as_text(value: object) -> object:
    return str(value) if isinstance(value, float) and str(value) in _NOT_FINITE else value


def _tidied(value: object) -> object:
    """Without nested hashes and addresses; a missing shard becomes the text None."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if not (key == "hash" and _is_integer(item))}
        return kept | {"shard_spec": "None"} if "shard_spec" in kept and kept["shard_spec"] is None else kept
    return _ADDRESS.sub("", value) if isinstance(value, str) else value


def _shape_as_list(value: object) -> object:
    if isinstance(value, dict) and value.get("type") == "Shape" and isinstance(value.get("value"), str):
        found = _SHAPE.fullmatch(value["value"])
        return [int(size) for size in found["sizes"].split(",") if size.strip()] if found else value
    return value


def _without_worker_cores(value: object) -> object:
    if isinstance(value, dict) and value.get("allowed_worker_cores", "") is None:
        return {key: item for key, item in value.items() if key != "allowed_worker_cores"}
    return value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_LATER_STEPS: dict[str, Step] = {
    "inf as text": _infinity_as_text,
    "shape as list": _shape_as_list,
    "no empty worker cores": _without_worker_cores,
}


def _all_rules() -> Iterator[HashRule]:
    """All rules; the tracer adopted the later steps one by one, so every combination of them is tried."""
    for mesh in (False, True):
        ending = ", mesh" if mesh else ""
        yield HashRule(name=f"raw{ending}", with_mesh=mesh)
        yield HashRule(name=f"raw, inf as number{ending}", steps=(_infinity_as_number,), with_mesh=mesh)
        for size in range(len(_LATER_STEPS) + 1):
            for names in combinations(_LATER_STEPS, size):
                steps = (_tidied, *(_LATER_STEPS[name] for name in names))
                yield HashRule(name=", ".join(("tidied", *names)) + ending, steps=steps, with_mesh=mesh)
        yield HashRule(name=f"tidied, inf as number{ending}", steps=(_tidied, _infinity_as_number), with_mesh=mesh)


RULES = tuple(_all_rules())


# --- Broken and missing arguments, as records ---


def repaired_argument(element: object, *, position: int) -> tuple[Argument, Damage]:
    """The argument inside an UnparsedElement, and its damage."""
    found = repair(element, position=position)
    value: Value = value_from_json(found.value) if found.is_read else Opaque(class_name=UNPARSED, text=found.text)
    damage = Damage(where=found.name, kind=found.kind, text=found.text, repaired=found.is_read)
    return Argument(name=found.name, value=value, position=position), damage


def unrecorded(argument: Argument) -> Damage | None:
    """The damage of an argument that is well-formed but says that the tracer could not write it."""
    kind = not_recorded(argument.value)
    return None if kind is None else Damage(where=argument.name, kind=kind, text=str(argument.value))


# --- Master files, from the first layout to the one rebuilt from a database ---


_MODEL = re.compile(r"\[(?:HF_MODEL|LLAMA_DIR):(?P<name>[^\]]+)\]")
_MACHINE = ("board_type", "device_series", "card_count", "mesh_device_shape")
_ENTRY_KEYS = {"arguments", "config_hash", "executions", "source", "machine_info", "contexts"}
_CONTENT = "content"  # the list of calls in the earliest files
_EXECUTION_KEYS = {"source", "count"}


def is_master(document: object) -> TypeGuard[JsonObject]:
    """Whether a JSON document looks like a master file, or like a list of traced operations."""
    if not isinstance(document, dict):
        return False
    return isinstance(document.get("operations"), dict) or isinstance(document.get("content"), list)


def read_master(document: JsonObject, *, source: str, run: str) -> Imported:
    """The configurations of a master file; `source` is used where the file names none."""
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
    return Imported(runs=(trace_run,), seen=(*seen, *count_calls(calls)), unread=tuple(unread))


def _entries(document: JsonObject) -> Iterator[tuple[str, object, str]]:
    """Each op, its entry and its position in the file, for every way in which files nest them."""
    for number, call in enumerate(as_list(document.get("content"))):
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


def _format_of(entry: JsonObject) -> TraceFormat:
    if isinstance(entry["arguments"], dict):
        executions = entry.get("executions")
        rebuilt = isinstance(executions, list) and any(
            isinstance(one, dict) and "trace_run_ids" in one for one in executions
        )
        return TraceFormat.TTNN_MASTER_V2_DB if rebuilt else TraceFormat.TTNN_MASTER_V2
    if "contexts" in entry or "machine_info" in entry or isinstance(entry.get("source"), list):
        return TraceFormat.TTNN_MASTER_V1_5
    return TraceFormat.TTNN_MASTER_V1 if "source" in entry else TraceFormat.TTNN_MASTER_V0


def _seen(op: str, entry: JsonObject, *, form: TraceFormat, source: str) -> SeenConfiguration:
    arguments, damage = _arguments(entry["arguments"])
    executions = list(executions_of(entry, source=source))
    machine: JsonObject = next((one["machine_info"] for one in executions if _names_board(one.get("machine_info"))), {})
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


def _arguments(given: list[object] | JsonObject) -> tuple[tuple[Argument, ...], tuple[Damage, ...]]:
    arguments: list[Argument] = []
    damage: list[Damage | None] = []
    if isinstance(given, dict):
        arguments = [named_argument(name, value_from_json(value)) for name, value in given.items()]
        arguments.sort(key=argument_order)
    for position, element in enumerate(given if isinstance(given, list) else ()):
        name, value = element_of(element, position)
        if name == UNPARSED:
            argument, broken = repaired_argument(value, position=position)
            damage.append(broken)
        else:
            argument = named_argument(name, value_from_json(value))
            damage.append(unrecorded(argument))
        arguments.append(argument)
    return tuple(arguments), tuple(one for one in damage if one is not None)


def _names_board(machine: object) -> bool:
    return isinstance(machine, dict) and bool(machine.get("board_type"))


def _occurrence(execution: JsonObject) -> Occurrence:
    source, count = str(execution.get("source") or ""), execution.get("count")
    runs = execution.get("trace_uid") or ",".join(map(str, as_list(execution.get("trace_run_ids"))))
    rest = {key: value for key, value in execution.items() if key not in _EXECUTION_KEYS}
    return Occurrence(
        source=source,
        run=str(runs),
        model=model_of(source),
        details=entries_from_json(rest) if rest else None,
        count=count if isinstance(count, int) and not isinstance(count, bool) else None,
    )


def model_of(source: str) -> str:
    """The model that a source text names, else the test or script itself."""
    found = _MODEL.search(source)
    return found["name"].strip() if found else source.partition(" [")[0]


def _foreign(op: str, entry: JsonObject, machine: JsonObject, form: TraceFormat) -> ForeignName:
    given = entry.get("config_hash")
    rest: Entries | None = None
    if kept := {key: value for key, value in entry.items() if key not in _ENTRY_KEYS}:
        rest = entries_from_json(kept)
    if not isinstance(given, str):
        return ForeignName(format=form, op=op, details=rest)
    rule = verified_rule(given, op, entry["arguments"], machine, RULES)
    return ForeignName(format=form, hash=given, rule=rule.name if rule else "", op=op, details=rest)
