"""Graph captures of ttnn -> SeenConfigurations: the calls a program made itself, not those inside them."""

from collections.abc import Iterator
from typing import Any

import msgspec

from torchstone.configs.exchange import Imported, Unread, counted
from torchstone.record.config import (
    Configuration,
    ForeignName,
    Occurrence,
    SeenConfiguration,
    TraceFormat,
    TraceRun,
)
from torchstone.record.json_value import entries_from_json, value_from_json
from torchstone.record.value import Argument, Entries

Json = dict[str, Any]

_START, _END = "function_start", "function_end"
_SAME_TENSOR = {"tensor_id", "address", "device_id"}  # which tensor it was, not what it was like


def is_graph(document: Any) -> bool:
    """Whether a JSON document looks like a graph capture."""
    return isinstance(document, list) and bool(document) and _is_node(document[0])


def _is_node(node: Any) -> bool:
    return (
        isinstance(node, dict)
        and isinstance(node.get("counter"), int)
        and isinstance(node.get("node_type"), str)
        and isinstance(node.get("params"), dict)
        and isinstance(node.get("connections"), list)
    )


def read_graph(nodes: list[Any], *, source: str, run: str) -> Imported:
    """The outermost calls of a graph capture."""
    whole = [node for node in nodes if _is_node(node)]
    unread = [
        Unread(where=f"node {number}", reason="it is not a node of a graph")
        for number, node in enumerate(nodes)
        if not _is_node(node)
    ]
    place = Occurrence(source=source, run=run, model=source)
    calls = (_seen(call, whole, place, ended=ended) for call, ended in _outermost(whole))
    trace_run = TraceRun(source=source, run=run, format=TraceFormat.TTNN_GRAPH)
    return Imported(runs=(trace_run,), seen=counted(calls), unread=tuple(unread))


def _outermost(nodes: list[Json]) -> Iterator[tuple[Json, bool]]:
    """Each call that is inside no other, and whether it came back."""
    running: list[Json] = []
    for node in nodes:
        if node["node_type"] == _START:
            running.append(node)
        elif node["node_type"] == _END and running:
            ended = running.pop()
            if not running:
                yield ended, True
    if running:
        yield running[0], False


def _seen(call: Json, nodes: list[Json], place: Occurrence, *, ended: bool) -> SeenConfiguration:
    name = str(call["params"].get("name"))
    if not ended:
        place = msgspec.structs.replace(place, details=Entries(entries=(("came_back", False),)))
    return SeenConfiguration(
        configuration=Configuration(op=name.replace("::", "."), arguments=tuple(_arguments(call, nodes))),
        occurrences=(place,),
        foreign=(ForeignName(format=TraceFormat.TTNN_GRAPH, op=name),),
    )


def _arguments(call: Json, nodes: list[Json]) -> Iterator[Argument]:
    """The arguments as text where the capture has them, else the tensors that lead into the call."""
    texts = call["params"].get("arguments") or call.get("arguments")
    if isinstance(texts, list) and texts:
        for position, text in enumerate(texts):
            yield Argument(name=f"arg{position}", value=value_from_json(text), position=position)
        return
    number = call["counter"]
    buffers = {node["counter"]: node for node in nodes if node["node_type"] == "buffer"}
    inputs = [node for node in nodes if node["node_type"] == "tensor" and number in node["connections"]]
    for position, node in enumerate(inputs):
        params = {key: value for key, value in node["params"].items() if key not in _SAME_TENSOR}
        buffer = next((one for one in buffers.values() if node["counter"] in one["connections"]), None)
        memory = {f"buffer_{key}": buffer["params"].get(key) for key in ("type", "layout")} if buffer else {}
        value = entries_from_json({"type": "ttnn.Tensor", **memory, **params})
        yield Argument(name=f"arg{position}", value=value, position=position)
