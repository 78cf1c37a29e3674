"""ttnn's operation parameter traces, a JSON file per call -> configurations, beside the aten ops of the same run."""

from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TypeGuard

from msgspec.structs import replace

from torchstone.backends.ttnn.tracer import REPORT, SITES
from torchstone.configs.exchange import RUN_CHARACTERS, Imported, JsonObject, Unread, count_calls
from torchstone.configs.ttnn_master import model_of
from torchstone.errors import UnreadableFileError
from torchstone.record.config import (
    Configuration,
    ForeignName,
    Occurrence,
    OpLog,
    SeenConfiguration,
    TensorFacts,
    TracedSource,
    TraceFormat,
    TraceRun,
)
from torchstone.record.files import all_files_below, matching, parse_json, read_file, read_json
from torchstone.record.value import Argument, entries_from_json, value_from_json

# --- Trace folders: a JSON file for each call ---


_METADATA, _STATUS = "_trace_metadata.json", "_status.json"
_PASSED = "passed"
_LARGEST_EXAMPLE = 4096  # a tensor with more values is summarized


def is_operation_trace(document: object) -> TypeGuard[JsonObject]:
    """Whether a JSON document is the trace of one call."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("operation_name"), str)
        and isinstance(document.get("args"), list)
        and isinstance(document.get("kwargs"), dict)
    )


def is_trace_folder(folder: Path) -> bool:
    """Whether a folder has traces of calls, directly or one level down."""
    return any(True for pattern in ("*_ttnn_*.json", "*/*_ttnn_*.json") for _ in matching(folder, pattern))


def read_trace_folder(folder: Path, *, keep_failing: bool = False) -> Imported:
    """The calls of a trace folder; those of tests that did not pass are reported as unread, unless `keep_failing`."""
    calls: list[SeenConfiguration] = []
    unread: list[Unread] = []
    metadata = _sibling(folder / _METADATA, unread) or {}
    source = str(metadata.get("test_source") or folder.resolve())
    run = str(metadata.get("trace_uid") or _digest(folder))
    inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(REPORT))
    for here in (folder, *inside):
        status = _sibling(here / _STATUS, unread) or {}
        if status and status.get("status") != _PASSED and not keep_failing:
            reason = f"its test {status.get('test_nodeid', '')} is {status.get('status')}, not passed"
            unread.append(Unread(where=here.name, reason=reason))
            continue
        model = model_of(str(metadata.get("test_source") or folder.name))
        place = Occurrence(source=str(status.get("test_nodeid") or source), run=run, model=model)
        sites = _call_sites(here / SITES)
        for path in matching(here, "*.json"):
            if not path.name.startswith("_"):
                _read_call(path, place, sites, calls, unread)
    details = entries_from_json(metadata) if metadata else None
    trace_run = TraceRun(source=source, run=run, format=TraceFormat.TTNN_OPERATION_TRACE, details=details)
    return Imported(runs=(trace_run,), seen=count_calls(calls), unread=tuple(unread))


def read_operation_trace(document: JsonObject, *, source: str, run: str) -> Imported:
    """The one call of a trace file."""
    one = _seen(document, Occurrence(source=source, run=run, model=model_of(Path(source).name)))
    trace_run = TraceRun(source=source, run=run, format=TraceFormat.TTNN_OPERATION_TRACE)
    return Imported(runs=(trace_run,), seen=count_calls([one]))


def _digest(folder: Path) -> str:
    """A run name for a trace that has none; equal files give equal names."""
    digest = sha256()
    for path in (one for one in all_files_below(folder) if one.suffix == ".json"):
        digest.update(path.relative_to(folder).as_posix().encode() + read_file(path))
    return digest.hexdigest()[:RUN_CHARACTERS]


def _call_sites(path: Path) -> dict[object, str]:
    """The line of Python of each call, by its number; a line that cannot be read is a call without one."""
    found: dict[object, str] = {}
    for line in read_file(path).decode("utf-8", "replace").splitlines() if path.is_file() else ():
        try:
            one = parse_json(line, origin=str(path))
        except UnreadableFileError:
            continue
        if isinstance(one, dict) and isinstance(one.get("call_site"), str):
            found[one.get("operation_id")] = one["call_site"]
    return found


def _read_call(
    path: Path,
    place: Occurrence,
    sites: dict[object, str],
    calls: list[SeenConfiguration],
    unread: list[Unread],
) -> None:
    try:
        document = _json_of(path)
    except UnreadableFileError as error:
        unread.append(Unread(where=path.name, reason=str(error)))
        return
    if not is_operation_trace(document):
        unread.append(Unread(where=path.name, reason="it is not the trace of a call"))
        return
    site = sites.get(document.get("operation_id"), "")
    calls.append(_seen(document, replace(place, call_site=site) if site else place))


def _sibling(path: Path, unread: list[Unread]) -> JsonObject | None:
    """A file of metadata beside the calls; None where there is none."""
    if not path.is_file():
        return None
    try:
        return _json_of(path)
    except UnreadableFileError as error:
        unread.append(Unread(where=f"{path.parent.name}/{path.name}", reason=str(error)))
        return {"status": "unknown"} if path.name == _STATUS else None


def _json_of(path: Path) -> JsonObject:
    document = read_json(path)
    return document if isinstance(document, dict) else {}


def _seen(document: JsonObject, place: Occurrence) -> SeenConfiguration:
    name = str(document["operation_name"])
    arguments: list[Argument] = []
    facts: list[TensorFacts] = []
    for position, given in enumerate(document["args"]):
        value = _without_values(given.get("value") if isinstance(given, dict) else given, facts)
        arguments.append(Argument(name=f"arg{position}", value=value_from_json(value), position=position))
    for key in sorted(document["kwargs"]):
        value = _without_values(document["kwargs"][key], facts)
        arguments.append(Argument(name=key, value=value_from_json(value)))
    tagged = document.get("sweep_source_hash")
    details = entries_from_json({"sweep_source_hash": tagged}) if tagged else None
    return SeenConfiguration(
        configuration=Configuration(op=name.replace("::", "."), arguments=tuple(arguments)),
        occurrences=(place,),
        facts=tuple(fact for fact in facts if fact.lowest is not None),
        foreign=(ForeignName(format=TraceFormat.TTNN_OPERATION_TRACE, op=name, details=details),),
    )


def _without_values(value: object, facts: list[TensorFacts]) -> object:
    """A value without the elements of its tensors: those become facts about a call, not part of its identity."""
    if isinstance(value, list):
        return [_without_values(item, facts) for item in value]
    if not isinstance(value, dict):
        return value
    if str(value.get("type", "")).endswith(".Tensor"):
        facts.append(_facts(len(facts), value.get("values")))
        return {key: item for key, item in value.items() if key != "values"}
    return {key: _without_values(item, facts) for key, item in value.items()}


def _facts(number: int, values: object) -> TensorFacts:
    flat = list(_flat(values))
    numbers = [value for value in flat if isinstance(value, int | float)]
    if not numbers or len(numbers) != len(flat):
        return TensorFacts(tensor=number)
    zeros = sum(value == 0 for value in numbers) / len(numbers)
    return TensorFacts(
        tensor=number,
        lowest=min(numbers),
        highest=max(numbers),
        fewest_zeros=zeros,
        most_zeros=zeros,
        values=tuple(numbers) if len(numbers) <= _LARGEST_EXAMPLE else None,
    )


def _flat(values: object) -> Iterator[object]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
    elif values is not None:
        yield values


# --- Merging an OpLog with what ttnn's own tracer wrote during the same run ---

ROLE = "ttnn"  # of every ttnn op: they have no schema that would give a more precise role


def with_ttnn_calls(log: OpLog, folder: Path) -> tuple[OpLog, tuple[Unread, ...]]:
    """The log with the calls of the folder added to their sources, and the files that could not be read."""
    if not folder.is_dir():
        return log, ()
    imported = read_trace_folder(folder, keep_failing=True)
    seen = _by_source(imported.seen)
    roles = log.roles | {one.configuration.op: ROLE for one in imported.seen}
    sources = tuple(_joined(source, seen[source.name]) for source in log.sources)
    return replace(log, sources=sources, roles=roles), imported.unread


def _by_source(configurations: tuple[SeenConfiguration, ...]) -> defaultdict[str, list[SeenConfiguration]]:
    found: defaultdict[str, list[SeenConfiguration]] = defaultdict(list)
    for one in configurations:
        for source in dict.fromkeys(place.source for place in one.occurrences):
            places = tuple(place for place in one.occurrences if place.source == source)
            found[source].append(replace(one, occurrences=places))
    return found


def _joined(source: TracedSource, seen: list[SeenConfiguration]) -> TracedSource:
    return replace(
        source,
        calls=source.calls + sum(one.calls for one in seen),
        configurations=(*source.configurations, *seen),
    )
