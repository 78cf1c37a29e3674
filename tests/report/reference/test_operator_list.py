import csv
import io
import json

import pytest

from tests.report.traces import transformer
from torchstone.report.reference.operator_list import operators_csv, operators_json, torch_function


def test_calls_add_up_to_those_of_the_run_in_both_files() -> None:
    trace = transformer(3)
    document = json.loads(operators_json(trace))
    rows = csv.DictReader(io.StringIO(operators_csv(trace).decode()))

    assert sum(row["calls"] for row in document["operators"]) == len(trace.ops)
    assert sum(one["calls"] for row in document["operators"] for one in row["variants"]) == len(trace.ops)
    assert sum(int(row["calls"]) for row in rows) == len(trace.ops)


def test_an_operator_says_where_and_with_what_it_is_called() -> None:
    document = json.loads(operators_json(transformer(2)))

    (matmul,) = (row for row in document["operators"] if row["op"] == "aten.mm.default")
    assert "model.layers.1.mlp.gate" in matmul["modules"]
    assert matmul["function"] == "mm"
    assert any("float32[1, 16, 64]" in one["arguments"] for one in matmul["variants"])


def test_module_types_add_up_to_all_modules_and_keep_their_attributes() -> None:
    trace = transformer(2)
    document = json.loads(operators_json(trace))

    assert sum(row["modules"] for row in document["module_types"]) == len(trace.modules)
    (attention,) = (row for row in document["module_types"] if row["class"] == "toy.Attention")
    assert attention["attributes"] == ["heads=4"]


@pytest.mark.parametrize(("op", "name"), [("aten.mm.default", "mm"), ("aten.add.Tensor", "add"), ("odd", "odd")])
def test_an_op_has_the_name_people_know(op: str, name: str) -> None:
    assert torch_function(op) == name
