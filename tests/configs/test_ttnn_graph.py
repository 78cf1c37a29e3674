import json
from typing import Any

import pytest

from tests.configs.real_files import real_file
from torchstone.configs.ttnn_graph import is_graph, read_graph
from torchstone.record.config import tensors_of
from torchstone.record.value import json_from_value

JsonObject = dict[str, Any]


def node(counter: int, kind: str, *connections: int, **params: Any) -> JsonObject:
    return {"counter": counter, "node_type": kind, "params": params, "connections": list(connections)}


def call(counter: int, name: str) -> list[JsonObject]:
    """An op with one input, that calls another op inside."""
    return [
        node(counter, "function_start", name=name, inputs="1"),
        node(counter + 1, "tensor", counter, shape="ttnn.Shape([2, 3])", tensor_id=str(counter)),
        node(counter + 2, "buffer", counter + 1, type="L1", layout="INTERLEAVED", size="24"),
        node(counter + 3, "function_start", name="ttnn::prim::inner"),
        node(counter + 4, "function_end", name="ttnn::prim::inner"),
        node(counter + 5, "function_end", name=name),
    ]


def read(nodes: list[Any]) -> Any:
    return read_graph(nodes, source="graph.json", run="1")


def test_only_the_outermost_calls_count() -> None:
    imported = read([node(0, "capture_start"), *call(1, "ttnn::relu"), *call(7, "ttnn::relu"), *call(13, "ttnn::tanh")])

    assert {one.configuration.op: one.calls for one in imported.seen} == {"ttnn.relu": 2, "ttnn.tanh": 1}


def test_the_tensors_that_lead_into_a_call_are_its_arguments() -> None:
    (one,) = read(call(1, "ttnn::relu")).seen

    (argument,) = one.configuration.arguments
    assert [tensor.shape for tensor in tensors_of(one.configuration)] == [(2, 3)]
    assert json_from_value(argument.value)["buffer_type"] == "L1"


def test_arguments_as_text_are_kept_as_they_stand() -> None:
    start = node(0, "function_start", name="ttnn::relu", arguments=["Tensor(storage=...)", "nullopt"])

    (one,) = read([start, node(1, "function_end", name="ttnn::relu")]).seen

    assert [argument.value for argument in one.configuration.arguments] == ["Tensor(storage=...)", "nullopt"]


def test_a_call_that_never_came_back_says_so() -> None:
    (one,) = read(call(1, "ttnn::relu")[:-1]).seen

    assert json_from_value(one.occurrences[0].details) == {"came_back": False}


def test_a_node_that_is_none_is_named() -> None:
    imported = read([*call(1, "ttnn::relu"), {"counter": 9}, 5])

    assert [part.where for part in imported.unread] == ["node 6", "node 7"]
    assert len(imported.seen) == 1


@pytest.mark.parametrize(("document", "yes"), [(call(0, "x"), True), ([], False), ({}, False), ([1], False)])
def test_a_graph_is_known_by_its_look(document: object, yes: bool) -> None:  # noqa: FBT001 - a case of the table
    assert is_graph(document) is yes


def test_the_real_capture_is_one_add() -> None:
    (one,) = read(json.loads(real_file("ttnn/graph_trace_add_broadcast.json").read_bytes())).seen

    assert one.configuration.op == "ttnn.add"
    assert [tensor.shape for tensor in tensors_of(one.configuration)] == [(4, 3, 32, 32), (1, 3, 32, 32)]
