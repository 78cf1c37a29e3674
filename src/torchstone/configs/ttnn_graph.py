"""Graph captures and graph reports of ttnn -> configurations, with the Python line that made each call."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath
from typing import TypeGuard

import msgspec

from torchstone.configs.exchange import Imported, JsonObject, Unread, argument_order, count_calls, named_argument
from torchstone.record.config import Configuration, ForeignName, Occurrence, SeenConfiguration, TraceFormat, TraceRun
from torchstone.record.ttnn import value_of_text
from torchstone.record.value import Argument, Entries, Fields, Value, entries_from_json, value_from_json

# --- Graph captures: the calls that a program made itself, not those inside them ---


_START, _END = "function_start", "function_end"
_SAME_TENSOR = {"tensor_id", "address", "device_id"}  # the identity of a tensor, not its properties


def is_graph(document: object) -> TypeGuard[list[object]]:
    """Whether a JSON document looks like a graph capture."""
    return isinstance(document, list) and bool(document) and _is_node(document[0])


def _is_node(node: object) -> TypeGuard[JsonObject]:
    return (
        isinstance(node, dict)
        and isinstance(node.get("counter"), int)
        and isinstance(node.get("node_type"), str)
        and isinstance(node.get("params") or {}, dict)  # null where a node has none
        and isinstance(node.get("connections"), list)
    )


def _params(node: JsonObject) -> JsonObject:
    found = node.get("params")
    return found if isinstance(found, dict) else {}


def read_graph(nodes: list[object], *, source: str, run: str) -> Imported:
    """The outermost calls of a graph capture."""
    whole = [node for node in nodes if _is_node(node)]
    unread = [
        Unread(where=f"node {number}", reason="it is not a node of a graph")
        for number, node in enumerate(nodes)
        if not _is_node(node)
    ]
    place = Occurrence(source=source, run=run, model=PurePath(source).name)
    calls = (_seen(call, whole, place, ended=ended) for call, ended in _outermost(whole))
    trace_run = TraceRun(source=source, run=run, format=TraceFormat.TTNN_GRAPH)
    return Imported(runs=(trace_run,), seen=count_calls(calls), unread=tuple(unread))


def _outermost(nodes: list[JsonObject]) -> Iterator[tuple[JsonObject, bool]]:
    """Each outermost call, and whether it returned."""
    running: list[JsonObject] = []
    for node in nodes:
        if node["node_type"] == _START:
            running.append(node)
        elif node["node_type"] == _END and running:
            ended = running.pop()
            if not running:
                yield ended, True
    if running:
        yield running[0], False


def _seen(call: JsonObject, nodes: list[JsonObject], place: Occurrence, *, ended: bool) -> SeenConfiguration:
    name = str(_params(call).get("name"))
    if not ended:
        place = msgspec.structs.replace(place, details=Entries(entries=(("came_back", False),)))
    return SeenConfiguration(
        configuration=Configuration(op=name.replace("::", "."), arguments=tuple(_arguments(call, nodes))),
        occurrences=(place,),
        foreign=(ForeignName(format=TraceFormat.TTNN_GRAPH, op=name),),
    )


def _arguments(call: JsonObject, nodes: list[JsonObject]) -> Iterator[Argument]:
    """The arguments as text where the capture has them, else the tensors that are connected to the call."""
    texts = _params(call).get("arguments") or call.get("arguments")
    if isinstance(texts, list) and texts:
        for position, text in enumerate(texts):
            yield Argument(name=f"arg{position}", value=value_from_json(text), position=position)
        return
    number = call["counter"]
    buffers = {node["counter"]: node for node in nodes if node["node_type"] == "buffer"}
    inputs = [node for node in nodes if node["node_type"] == "tensor" and number in node["connections"]]
    for position, node in enumerate(inputs):
        params = {key: value for key, value in _params(node).items() if key not in _SAME_TENSOR}
        buffer = next((one for one in buffers.values() if node["counter"] in one["connections"]), None)
        memory = {f"buffer_{key}": _params(buffer).get(key) for key in ("type", "layout")} if buffer else {}
        value = entries_from_json({"type": "ttnn.Tensor", **memory, **params})
        yield Argument(name=f"arg{position}", value=value, position=position)


# --- Graph reports: with the line of Python that made each call ---


_MODULE = "in <module>"
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_SAME_TENSOR_IN_REPORT = (
    "tensor_id",
    "address",
    "device_id",
    "buffer_address",
)  # the identity of a tensor, not its properties


def is_report(document: object) -> TypeGuard[JsonObject]:
    """Whether a JSON document is a graph report."""
    return isinstance(document, dict) and "version" in document and ("graph" in document or "python_io" in document)


def read_report(document: JsonObject, *, source: str, run: str) -> Imported:
    """The calls of a graph report; from its graph alone where it has no Python arguments."""
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
        made.append(_seen_in_report(call, source=source, run=run))
    return Imported(runs=(trace_run,), seen=count_calls(made), unread=tuple(unread))


def _seen_in_report(call: JsonObject, *, source: str, run: str) -> SeenConfiguration:
    arguments = []
    tensors: list[str] = []
    for name, given in call["arguments"].items():
        value = _described(given, tensors)
        positional = named_argument(f"arg{name}", value)
        arguments.append(positional if positional.position is not None else Argument(name=name, value=value))
    arguments.sort(key=argument_order)
    place = Occurrence(
        source=source,
        run=run,
        model=PurePath(source).name,
        call_site=_call_site(call.get("python_stack_trace"), call["name"]),
    )
    return SeenConfiguration(
        configuration=Configuration(
            op=call["name"].replace("::", "."), arguments=tuple(arguments), aliases=_aliases(tensors)
        ),
        occurrences=(place,),
        foreign=(ForeignName(format=TraceFormat.TTNN_GRAPH_REPORT, op=call["name"]),),
    )


def _described(given: object, tensors: list[str]) -> Value:
    value = value_of_text(given) if isinstance(given, str) else value_from_json(given)
    if not (isinstance(value, Fields) and value.class_name == "ttnn.Tensor"):
        return value
    tensors.append(next((str(part) for name, part in value.fields if name == "tensor_id"), f"unnamed {len(tensors)}"))
    kept = tuple((name, part) for name, part in value.fields if name not in _SAME_TENSOR_IN_REPORT)
    return Fields(class_name=value.class_name, fields=kept)


def _aliases(tensors: list[str]) -> tuple[tuple[int, ...], ...]:
    """The groups of arguments that are the same tensor."""
    places: dict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(tensors):
        places[name].append(number)
    return tuple(tuple(group) for group in places.values() if len(group) > 1)


def _call_site(stack: object, op: str) -> str:
    """The innermost line of the stack: which end of it that is depends on the version that wrote the report.

    It is the end whose code names the op, else the one that is not the module that was run, else the first.
    """
    texts = [text for text in map(str, stack) if _FRAME.search(text)] if isinstance(stack, list) else []
    if not texts:
        return ""
    called = f"{re.split(r'::|[.]', op)[-1]}("
    ends = [text for text in (texts[0], texts[-1]) if called in text]
    if len(ends) != 1:
        ends = [text for text in (texts[0], texts[-1]) if _MODULE not in text] or texts
    return ":".join(_FRAME.findall(ends[0])[0])
