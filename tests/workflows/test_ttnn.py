"""Calls of real ttnn on its mock device; needs its environment."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.backends.ttnn.environments import needs_ttnn, ttnn_environment
from tests.configs.real_files import real_file
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.workflows.ttnn import JudgeRequest, diagnose_ttnn, judge_configurations

pytestmark = [pytest.mark.ttnn, needs_ttnn]


def tensor(*shape: int, dtype: str = "BFLOAT16", buffer: str = "DRAM") -> dict[str, Any]:
    memory = {"memory_layout": "TensorMemoryLayout.INTERLEAVED", "buffer_type": f"BufferType.{buffer}"}
    return {"type": "ttnn.Tensor", "original_shape": list(shape), "original_dtype": f"DataType.{dtype}",
            "layout": "Layout.TILE", "storage_type": "StorageType.DEVICE", "memory_config": memory}  # fmt: skip


CALLS: dict[str, list[dict[str, Any]]] = {
    "ttnn.add": [{"arg0": tensor(1, 1, 32, 64), "arg1": tensor(1, 1, 32, 64)}],
    "ttnn.matmul": [{"arg0": tensor(1, 1, 32, 256), "arg1": tensor(1, 1, 128, 64)}],
    "ttnn.relu": [{"arg0": tensor(1, 1, 16384, 16384, buffer="L1")}],
    "ttnn.reshape": [{"arg0": tensor(1, 1, 32, 64), "shape": [1, -1]}],
    "ttnn.no_such_op": [{"arg0": tensor(1, 1, 32, 64)}],
    "ttnn.softmax": [{"arg0": {"type": "ttnn.Tensor", "original_dtype": "DataType.BFLOAT16"}, "dim": -1}],
}
DRAM_SHARDED = {
    "memory_layout": "TensorMemoryLayout.WIDTH_SHARDED", "buffer_type": "BufferType.DRAM",
    "shard_spec": {"grid": [{"start": {"x": 0, "y": 0}, "end": {"x": 11, "y": 0}}], "shape": [32, 32],
                   "orientation": "ROW_MAJOR"},
}  # fmt: skip


def master(path: Path, calls: dict[str, list[dict[str, Any]]]) -> Path:
    operations = {op: {"configurations": [{"arguments": one} for one in each]} for op, each in calls.items()}
    path.write_text(json.dumps({"metadata": {}, "operations": operations}), encoding="utf-8")
    return path


def test_every_kind_of_call_gets_its_own_verdict_and_none_is_a_pass(tmp_path: Path) -> None:
    file = master(tmp_path / "master.json", CALLS)
    request = JudgeRequest(
        paths=(file,), devices=("n150",), pythons=(ttnn_environment(),), folder=tmp_path / "sweep", jobs=1
    )
    (judged,) = judge_configurations(request).runs

    assert judged.outcomes == {"accepted": 2, "not run": 2, "out of memory": 1, "refused": 1}
    causes = {one.ops[0]: one for one in judged.causes}
    assert "width=N height=N" in causes["ttnn.matmul"].cause
    assert causes["ttnn.matmul"].place.endswith("matmul_device_operation.cpp:79")
    assert "no op ttnn.no_such_op" in causes["ttnn.no_such_op"].cause
    assert "arg0" in causes["ttnn.softmax"].cause


def test_what_breaks_on_another_board_is_named_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sharded = tensor(1, 1, 32, 384) | {"memory_config": DRAM_SHARDED}
    file = master(tmp_path / "master.json", {"ttnn.to_memory_config": [{"arg0": sharded, "arg1": {
        "memory_layout": "TensorMemoryLayout.INTERLEAVED", "buffer_type": "BufferType.DRAM"}}]})  # fmt: skip
    options = ["--device", "n150", "--device", "p150", "--python", ttnn_environment(), "--dir", str(tmp_path / "sweep")]

    assert run(["ttnn", "judge", str(file), *options]) == EXIT_FINDINGS
    said = capsys.readouterr().out
    assert "1 of 1 break on p150" in said
    assert "has no DRAM bank on this device" in said
    assert "pass" not in said.replace("not that its result is right", "").lower()


def test_the_doctor_opens_a_board() -> None:
    found = diagnose_ttnn(ttnn_environment(), ["n150"])

    assert found.is_healthy
    assert found.boards[0].cores == (8, 8)
    assert found.boards[0].dram_banks == 12


def test_a_wrong_board_is_an_error_of_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = master(tmp_path / "master.json", {"ttnn.add": CALLS["ttnn.add"]})
    options = ["--device", "n151", "--python", ttnn_environment(), "--dir", str(tmp_path / "sweep")]

    assert run(["ttnn", "judge", str(file), *options]) == EXIT_BAD_INPUT
    assert "n151" in capsys.readouterr().err


EXPECTED = [
    ("master_v2_llama32_1b_n300_2026-05.json", "auto", {"accepted": 609}),
    ("master_v2_deepseek_v3_galaxy_2026-03.json", "auto", {"accepted": 338}),
    ("master_v1_2025-11.json", "n300", {"accepted": 1062, "refused": 15, "out of memory": 2}),
    ("master_v2_llama32_1b_n300_2026-05.json", "p150", {"accepted": 546, "refused": 63}),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "device", "outcomes"), EXPECTED)
def test_the_sample_masters_are_judged_as_on_their_boards(
    name: str, device: str, outcomes: dict[str, int], tmp_path: Path
) -> None:
    path = real_file(f"ttnn/{name}")
    request = JudgeRequest(paths=(path,), devices=(device,), pythons=(ttnn_environment(),), folder=tmp_path)

    assert judge_configurations(request).runs[0].outcomes == outcomes


def test_help_needs_no_ttnn() -> None:
    assert run(["ttnn", "judge", "--help"]) == EXIT_FINE


def test_an_analysis_executes_the_model_on_the_mock_board(tmp_path: Path) -> None:
    arguments = ["analyze", "tiny:gpt2", "--hardware", "n150", "--python", ttnn_environment(), "--backend", "eager"]
    assert run([*arguments, "--quick", "--quiet", "--dir", str(tmp_path)]) == EXIT_FINE

    stages = {one["name"]: one for one in json.loads((tmp_path / "analysis.json").read_text("utf-8"))["stages"]}
    assert stages["fits n150"]["good"]
    assert "Executed on a mock n150 (ttnn" in stages["fits n150"]["answers"][1]
