import json

from tests.report.traces import empty_model, transformer
from torchstone.report.view.overview import inspection_document


def test_the_document_has_the_keys_that_others_rely_on() -> None:
    document = json.loads(json.dumps(inspection_document(transformer(2))))

    assert document["schema"] == "torchstone/inspect/1"
    assert {"parameters", "parameter_bytes", "modules", "unique_modules", "ops", "distinct_ops"} <= {
        *document["totals"]
    }
    assert {"path", "class", "parameters", "inputs", "outputs", "calls"} <= {*document["modules"][0]}
    assert document["operators"][0]["op"] == "aten.mm.default"
    assert document["failure"] is None


def test_the_parts_agree_with_the_totals() -> None:
    document = inspection_document(transformer(3))

    assert len(document["modules"]) == document["totals"]["modules"]
    assert document["modules"][0]["parameters"] == document["totals"]["parameters"]
    assert sum(row["calls"] for row in document["operators"]) == document["totals"]["ops"]
    assert len(document["operators"]) == document["totals"]["distinct_ops"]


def test_shapes_are_plain_lists() -> None:
    module = {row["path"]: row for row in inspection_document(transformer(1))["modules"]}["lm_head"]

    assert module["inputs"] == [{"shape": [1, 16, 64], "dtype": "float32"}]
    assert module["outputs"] == [{"shape": [1, 16, 1000], "dtype": "float32"}]


def test_a_failure_names_module_op_and_error() -> None:
    failure = inspection_document(transformer(2, fails_in=0))["failure"]

    assert failure["module"] == "model.layers.0.attention.q_proj"
    assert failure["op"] == "aten.mm.default"
    assert "cannot be multiplied" in failure["error"]


def test_a_module_that_was_called_with_nothing_has_empty_lists() -> None:
    (module,) = inspection_document(empty_model())["modules"]

    assert (module["inputs"], module["outputs"], module["calls"]) == ([], [], 1)
