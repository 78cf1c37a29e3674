import csv
import io
import json

import pytest

from tests.report.traces import transformer
from torchstone.record.reference import FunctionUse
from torchstone.report.reference.documents import functions_csv, operators_csv, operators_json, torch_function


def test_calls_add_up_to_those_of_the_run_in_both_files() -> None:
    trace = transformer(3)
    document = json.loads(operators_json(trace))
    rows = csv.DictReader(io.StringIO(operators_csv(trace).decode()))

    assert sum(row["calls"] for row in document["operators"]) == len(trace.ops)
    assert sum(one["calls"] for row in document["operators"] for one in row["variants"]) == len(trace.ops)
    assert sum(int(row["calls"]) for row in rows) == len(trace.ops)


def test_each_line_of_the_csv_names_the_module_that_makes_its_calls() -> None:
    trace = transformer(3)
    rows = list(csv.DictReader(io.StringIO(operators_csv(trace).decode())))

    calls: dict[tuple[str, str], int] = {}
    for row in rows:
        calls[row["op"], row["module"]] = calls.get((row["op"], row["module"]), 0) + int(row["calls"])
    counted: dict[tuple[str, str], int] = {}
    for call in trace.ops:
        key = (call.op, trace.module_path_of(call) or "(root)")
        counted[key] = counted.get(key, 0) + 1
    assert calls == counted
    assert {row["class"] for row in rows if row["module"].endswith(".attention")} == {"Attention"}


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


def test_torch_functions_are_summed_over_their_arguments_and_say_where() -> None:
    uses = [
        FunctionUse(function="torch.relu", arguments="float32[2]", output="float32[2]", calls=2, modules=("", "a")),
        FunctionUse(function="torch.cat", arguments="[float32[2]]", output="float32[2]", calls=1, modules=("a",)),
        FunctionUse(function="torch.cat", arguments="[float32[3]]", output="float32[3]", calls=4, modules=("b",)),
    ]

    document = json.loads(operators_json(transformer(1), uses))
    rows = list(csv.DictReader(io.StringIO(functions_csv(uses).decode())))

    assert [(row["function"], row["calls"], row["modules"]) for row in document["functions"]] == [
        ("torch.cat", 5, ["a", "b"]),
        ("torch.relu", 2, ["(root)", "a"]),
    ]
    assert [one["calls"] for one in document["functions"][0]["variants"]] == [1, 4]
    assert rows[0] == {
        "function": "torch.relu", "calls": "2", "arguments": "float32[2]", "output": "float32[2]",
        "modules": "(root) a",
    }  # fmt: skip
