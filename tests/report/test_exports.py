"""Files for other viewers, checked against what they are made from."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from tests.check.results import check_result, finding, module
from tests.cost.devices import device
from tests.report.folders import folder_of
from tests.report.traces import hostile_names, transformer
from torchstone.cli.main import run
from torchstone.cost import price
from torchstone.cost.roofline import predict
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.record.codec import save
from torchstone.record.cost import CostTable
from torchstone.record.trace import Trace
from torchstone.report.exports import FLOPS_FILE, GRAPH_FILE, PERFETTO_FILE, graph_files, timeline


def priced(trace: Trace) -> CostTable:
    table = price(trace)
    return msgspec.structs.replace(table, prediction=predict(trace, table, device()))


def graph_of(trace: Trace, **more: Any) -> dict[str, Any]:
    files: dict[str, Any] = graph_files(trace, more.get("cost"), more.get("check"))
    found: dict[str, Any] = files[GRAPH_FILE][0]["graphs"][0]
    return found


# The fields that Model Explorer 0.1.34 defines in graph_builder.py and node_data_builder.py, and no others. The event
# types are those of the Trace Event Format, which Perfetto and Chrome read.


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A document that has these fields and no others."""


class KeyValue(Strict):
    key: str
    value: str


class MetadataItem(Strict):
    id: str
    attrs: list[KeyValue] = []


class IncomingEdge(Strict):
    source_node_id: str
    source_node_output_id: str = "0"
    target_node_input_id: str = "0"


class NodeStyle(Strict):
    background_color: str = ""
    border_color: str = ""
    hovered_border_color: str = ""


class GraphNode(Strict):
    id: str
    label: str
    namespace: str = ""
    attrs: list[KeyValue] = []
    incoming_edges: list[IncomingEdge] = []
    outputs_metadata: list[MetadataItem] = []
    style: NodeStyle | None = None


class Graph(Strict):
    id: str
    nodes: list[GraphNode]
    group_node_attributes: dict[str, dict[str, str]] = {}


class GraphCollection(Strict):
    label: str
    graphs: list[Graph]


class NodeResult(Strict):
    value: int | float


class GradientItem(Strict):
    stop: int | float
    bg_color: str


class GraphNodeData(Strict):
    results: dict[str, NodeResult]
    name: str
    gradient: list[GradientItem]


class Metadata(Strict, tag_field="ph", tag="M"):
    pid: int
    tid: int
    name: str
    args: dict[str, str]


class Complete(Strict, tag_field="ph", tag="X"):
    pid: int
    tid: int
    ts: Annotated[float, msgspec.Meta(ge=0)]
    dur: Annotated[float, msgspec.Meta(ge=0)]
    name: str
    args: dict[str, str | int]


class Counted(Strict, tag_field="ph", tag="C"):
    pid: int
    ts: Annotated[float, msgspec.Meta(ge=0)]
    name: str
    args: dict[str, int]


class Timeline(Strict):
    trace_events: list[Metadata | Complete | Counted]
    display_time_unit: Literal["ms", "ns"]


def test_files_have_the_fields_of_their_viewers_and_no_others() -> None:
    trace = transformer(2)
    cost = priced(trace)
    checked = check_result(
        modules=(module("", "failed", reason="it is wrong"),), findings=(finding("aten.mm.default"),)
    )
    files = graph_files(trace, cost, checked)

    (collection,) = msgspec.convert(files[GRAPH_FILE], list[GraphCollection])
    data = msgspec.convert(files[FLOPS_FILE], dict[str, GraphNodeData])
    assert data.keys() == {collection.graphs[0].id}
    (overlay,) = data.values()
    assert overlay.results.keys() <= {node.id for node in collection.graphs[0].nodes}
    assert [one.stop for one in overlay.gradient] == [0, 1]  # both ends must be there
    assert len(msgspec.convert(timeline(trace, cost), Timeline).trace_events) > len(trace.ops)


def test_the_timeline_takes_as_long_as_predicted_and_modules_enclose_their_ops() -> None:
    trace = transformer(3)
    cost = priced(trace)
    assert cost.prediction is not None

    events: list[dict[str, Any]] = timeline(trace, cost)["traceEvents"]  # type: ignore[assignment]

    ops = [one for one in events if one["ph"] == "X" and one["tid"] == 2]
    assert len(ops) == len(trace.ops)
    assert ops[-1]["ts"] + ops[-1]["dur"] == pytest.approx(cost.prediction.total_s * 1e6)
    assert sum(one["args"].get("FLOPs", 0) for one in ops) == cost.totals.flops
    modules = {one["name"]: one for one in events if one["ph"] == "X" and one["tid"] == 1}
    for path, seconds in zip((one.path for one in trace.modules), cost.prediction.modules_s, strict=True):
        if path in modules:
            assert modules[path]["dur"] == pytest.approx(seconds * 1e6)
    counters = [one["args"]["bytes"] for one in events if one["ph"] == "C"]
    assert max(counters) == cost.peak.total_bytes


def test_every_edge_of_the_graph_comes_from_a_node_and_every_op_is_in_its_module() -> None:
    trace = transformer(3)

    nodes = {node["id"]: node for node in graph_of(trace)["nodes"]}

    assert all(edge["sourceNodeId"] in nodes for node in nodes.values() for edge in node.get("incomingEdges", ()))
    for call in trace.ops:
        node = nodes[f"op{call.index}"]
        assert node["namespace"] == trace.module_path_of(call).replace(".", "/")
        assert len(node["incomingEdges"]) == len(call.inputs)
        assert all(isinstance(one["value"], str) for one in node["attrs"])


def test_flops_lie_over_the_nodes_and_what_failed_is_coloured() -> None:
    trace = transformer(2)
    cost = priced(trace)
    first = next(one.path for one in trace.modules if one.path and not one.container)
    check = check_result(
        finding(), modules=(module(first, "failed", outcome="wrong"), *check_result(finding()).modules)
    )

    files: dict[str, Any] = graph_files(trace, cost, check)

    results = files[FLOPS_FILE][trace.provenance.model]["results"]
    assert sum(one["value"] for one in results.values()) == cost.totals.flops
    graph = files[GRAPH_FILE][0]["graphs"][0]
    coloured = {node["namespace"] for node in graph["nodes"] if "style" in node}
    assert coloured <= {first.replace(".", "/")}
    assert graph["groupNodeAttributes"][first.replace(".", "/")][check.backend].startswith("failed")


def test_names_of_a_model_are_text_and_nothing_else() -> None:
    assert json.loads(msgspec.json.encode(graph_of(hostile_names())))["nodes"]


def test_the_command_writes_both_and_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = transformer(2)
    folder = folder_of(trace, tmp_path)

    assert run(["report", str(folder), "--export", "perfetto"]) == EXIT_BAD_INPUT
    assert "--hardware" in capsys.readouterr().err
    save(folder / "cost.json", price(trace))
    assert run(["report", str(folder), "--export", "perfetto"]) == EXIT_BAD_INPUT
    assert "no predicted times" in capsys.readouterr().err
    save(folder / "cost.json", priced(trace))
    assert run(["report", str(folder), "--export", "perfetto", "--export", "model-explorer", "-q"]) == EXIT_FINE
    assert [Path(line).name for line in capsys.readouterr().out.splitlines()[1:]] == [
        PERFETTO_FILE, GRAPH_FILE, FLOPS_FILE,
    ]  # fmt: skip
    save(folder / "cost.json", priced(transformer(3, width=32)))
    assert run(["report", str(folder), "--export", "perfetto"]) == EXIT_BAD_INPUT
