"""Graph report files of ttnn -> SeenConfigurations, with the line of Python that made each call."""

import re
from collections import defaultdict
from typing import Any

from torchstone.configs.exchange import Imported, Unread, counted
from torchstone.configs.ttnn_graph import is_graph, read_graph
from torchstone.record.config import (
    Configuration,
    ForeignName,
    Occurrence,
    SeenConfiguration,
    TraceFormat,
    TraceRun,
)
from torchstone.record.json_value import entries_from_json, value_from_json
from torchstone.record.ttnn_text import value_of_text
from torchstone.record.value import Argument, Fields, Value

Json = dict[str, Any]

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_SAME_TENSOR = ("tensor_id", "address", "device_id", "buffer_address")  # which tensor it was, not what it was like


def is_report(document: Any) -> bool:
    """Whether a JSON document is a graph report."""
    return isinstance(document, dict) and "version" in document and ("graph" in document or "python_io" in document)


def read_report(document: Json, *, source: str, run: str) -> Imported:
    """The calls of a graph report; from its graph alone where it does not say what Python gave to them."""
    calls = document.get("python_io")
    metadata = document.get("metadata")
    details = entries_from_json(metadata) if isinstance(metadata, dict) and metadata else None
    trace_run = TraceRun(source=source, run=run, format=TraceFormat.TTNN_GRAPH_REPORT, details=details)
    if not isinstance(calls, list):
        graph = document.get("graph")
        found = read_graph(graph if isinstance(graph, list) and is_graph(graph) else [], source=source, run=run)
        return Imported(runs=(trace_run,), seen=found.seen, unread=found.unread)
    made: list[SeenConfiguration] = []
    unread = []
    for number, call in enumerate(calls):
        if not (
            isinstance(call, dict) and isinstance(call.get("name"), str) and isinstance(call.get("arguments"), dict)
        ):
            unread.append(Unread(where=f"python_io {number}", reason="it has no name or no arguments"))
            continue
        made.append(_seen(call, source=source, run=run))
    return Imported(runs=(trace_run,), seen=counted(made), unread=tuple(unread))


def _seen(call: Json, *, source: str, run: str) -> SeenConfiguration:
    arguments = []
    tensors: list[str] = []
    for name, given in call["arguments"].items():
        value = _described(given, tensors)
        position = int(name) if name.isascii() and name.isdigit() else None
        arguments.append(Argument(name=name if position is None else f"arg{name}", value=value, position=position))
    arguments.sort(key=lambda one: (one.position is None, one.position or 0, one.name))
    place = Occurrence(source=source, run=run, model=source, call_site=_call_site(call.get("python_stack_trace")))
    return SeenConfiguration(
        configuration=Configuration(
            op=call["name"].replace("::", "."), arguments=tuple(arguments), aliases=_aliases(tensors)
        ),
        occurrences=(place,),
        foreign=(ForeignName(format=TraceFormat.TTNN_GRAPH_REPORT, op=call["name"]),),
    )


def _described(given: Any, tensors: list[str]) -> Value:
    value = value_of_text(given) if isinstance(given, str) else value_from_json(given)
    if not (isinstance(value, Fields) and value.class_name == "ttnn.Tensor"):
        return value
    tensors.append(next((str(part) for name, part in value.fields if name == "tensor_id"), f"unnamed {len(tensors)}"))
    kept = tuple((name, part) for name, part in value.fields if name not in _SAME_TENSOR)
    return Fields(class_name=value.class_name, fields=kept)


def _aliases(tensors: list[str]) -> tuple[tuple[int, ...], ...]:
    """The groups of arguments that are the same tensor."""
    places: dict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(tensors):
        places[name].append(number)
    return tuple(tuple(group) for group in places.values() if len(group) > 1)


def _call_site(stack: Any) -> str:
    """The innermost line of the stack; a report lists the outermost call first."""
    frames = _FRAME.findall("\n".join(map(str, stack))) if isinstance(stack, list) else []
    return ":".join(frames[-1]) if frames else ""
