"""Vectors of tt-metal's files as calls of torch."""

import json
from pathlib import Path
from typing import Any

import pytest

from torchstone.cli.main import run
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE
from torchstone.record.value import show_value
from torchstone.record.vector import Validity, Vector
from torchstone.sweep.tt_metal_vectors import as_torch_call

A = {"input_a_shape": "(1, 1, 32, 64)", "input_a_dtype": "DataType.BFLOAT16", "input_a_layout": "Layout.TILE"}
B = {"input_b_shape": "(1, 1, 1, 64)", "input_b_dtype": "DataType.FLOAT32"}
NOWHERE = {"output_memory_config": {"type": "MemoryConfig", "data": {}}, "arg1": "__ABSENT__", "traced_source": ["a"]}


def vector(op: str, **parameters: object) -> Vector:
    module = f"model_traced.{op}_model_traced"
    return Vector(id=f"id of {op}", module=module, suite="model_traced", op=op, parameters=dict(parameters))


def call_text(translated: Vector) -> str:
    assert translated.configuration is not None, translated.reason
    arguments = ", ".join(f"{one.name}={show_value(one.value)}" for one in translated.configuration.arguments)
    return f"{translated.configuration.op}({arguments})"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (vector("relu", **A, **NOWHERE), "aten.relu.default(self=bfloat16[1, 1, 32, 64])"),
        (
            vector("add", **A, **B, **NOWHERE),
            "aten.add.Tensor(self=bfloat16[1, 1, 32, 64], other=float32[1, 1, 1, 64], alpha=1)",
        ),
        (vector("multiply", **A, arg1="0.5"), "aten.mul.Scalar(self=bfloat16[1, 1, 32, 64], other=0.5)"),
        (
            vector("add", input_shape={"self": [2, 3], "other": [3]}, input_a_dtype="ttnn.float32", storage_type="D"),
            "aten.add.Tensor(self=float32[2, 3], other=float32[3], alpha=1)",
        ),
        (
            vector("softmax", **A, dim=-1),
            "aten._softmax.default(self=bfloat16[1, 1, 32, 64], dim=-1, half_to_float=False)",
        ),
        (
            vector("permute", **A, dims="(0, 2, 1, 3)"),
            "aten.permute.default(self=bfloat16[1, 1, 32, 64], dims=[0, 2, 1, 3])",
        ),
        (vector("transpose", **A, arg1=2, arg2=3), "aten.transpose.int(self=bfloat16[1, 1, 32, 64], dim0=2, dim1=3)"),
        (
            vector("reshape", **A, target_shape="(32, 64)"),
            "aten.view.default(self=bfloat16[1, 1, 32, 64], size=[32, 64])",
        ),
    ],
)
def test_an_op_that_torch_has_becomes_its_call(given: Vector, wanted: str) -> None:
    translated = as_torch_call(given)

    assert call_text(translated) == wanted
    assert (translated.id, translated.module, translated.parameters) == (given.id, given.module, given.parameters)


def test_a_block_format_is_run_as_bfloat16_and_says_so() -> None:
    translated = as_torch_call(vector("relu", **{**A, "input_a_dtype": "DataType.BFLOAT8_B"}))

    assert call_text(translated) == "aten.relu.default(self=bfloat16[1, 1, 32, 64])"
    assert translated.change == "BFLOAT8_B as bfloat16"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (vector("conv2d", **A), "no rule for conv2d"),
        (vector("exp", **A, fast_and_approximate_mode=True), "parameter fast_and_approximate_mode"),
        (vector("gelu", **A, arg1="True"), "parameter arg1"),
        (vector("relu", **A, **B), "it has 2 tensors"),
        (vector("add", **A), "no parameter arg1 or scalar"),
        (vector("add", **A, arg1="ttnn.x"), "'ttnn.x' is not a number"),
        (vector("relu", input_a_shape="(1, -1)", input_a_dtype="DataType.BFLOAT16"), "is not a shape"),
        (vector("relu", input_a_shape="(1, 1)", input_a_dtype="DataType.UINT32"), "no element type DataType.UINT32"),
        (vector("relu", input_a_shape="__import__('os')", input_a_dtype="DataType.FLOAT32"), "is not a shape"),
        (vector("relu"), "name no shape"),
        (vector("add", **A, **B, activations=["relu"]), "parameter activations"),
        (vector("add", **A, **B, dtype="DataType.FLOAT32"), "parameter dtype"),
    ],
)
def test_what_no_rule_fits_is_not_valid_and_says_why(given: Vector, reason: str) -> None:
    translated = as_torch_call(given)

    assert translated.validity is Validity.INVALID
    assert reason in translated.reason
    assert translated.configuration is None


def document(*vectors: Vector) -> dict[str, Any]:
    frame = {"validity": "VectorValidity.VALID", "invalid_reason": "", "status": "VectorStatus.CURRENT"}
    rows = {one.id: {**one.parameters, **frame, "sweep_name": one.module} for one in vectors}
    return {"model_traced": rows}


@pytest.mark.torch
def test_vectors_of_tt_metal_run_and_their_results_go_back_under_the_same_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("vectors_export").mkdir()
    for one in (vector("relu", **A, **NOWHERE), vector("conv2d", **A)):
        Path(f"vectors_export/{one.module}.json").write_text(json.dumps(document(one)))
    Path("vectors_export/generation_manifest.json").write_text("{}")

    assert run(["sweep", "import", "vectors_export"]) == EXIT_FINE
    assert "2 vectors, 1 of them can run" in capsys.readouterr().out
    assert run(["sweep", "run", "--json", "--backend", "eager"]) == EXIT_FINE
    results = {one["id"]: one for one in json.loads(capsys.readouterr().out)["results"]}
    assert results["id of relu"]["status"] == "PASS"
    assert results["id of conv2d"]["status"] == "NOT_RUN"
    assert "no rule for conv2d" in results["id of conv2d"]["detail"]

    assert run(["sweep", "export", "back"]) == EXIT_FINE
    rows = [
        row for path in Path("back/results_export").glob("model_traced_*.json") for row in json.loads(path.read_text())
    ]
    assert {row["input_hash"]: row["status"] for row in rows} == {"id of relu": "pass", "id of conv2d": "skipped"}
    assert {path.name for path in Path("back/vectors_export").iterdir()} >= {"model_traced.relu_model_traced.json"}


@pytest.mark.torch
def test_a_wrong_vector_of_tt_metal_becomes_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("relu.json").write_text(json.dumps(document(vector("relu", **A))))
    wrong = ["--backend", "faulty", "--backend-option", "fault=wrong"]

    assert run(["sweep", "import", "relu.json", "-q"]) == EXIT_FINE
    assert run(["sweep", "run", "-q", *wrong]) == EXIT_FINDINGS
    capsys.readouterr()
    assert run(["sweep", "repro", "id of relu", "--no-shrink"]) == EXIT_FINE
