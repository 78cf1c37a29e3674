"""A sweep file as tt-metal's guide writes it, on real ttnn: the loader gives ttnn's own enums and memory configs."""

from pathlib import Path

import pytest

from tests.backends.ttnn.environments import needs_ttnn, ttnn_environment, ttnn_has_torch
from tests.workflows.test_ttnn import master, tensor
from torchstone.backends.ttnn.boards import find_board
from torchstone.backends.ttnn.environment import interpreter_of, kernel_cache
from torchstone.cli.main import run
from torchstone.errors import EXIT_FINE

pytestmark = [pytest.mark.ttnn, needs_ttnn]

SHARDED = {
    "memory_layout": "TensorMemoryLayout.HEIGHT_SHARDED", "buffer_type": "BufferType.L1",
    "shard_spec": {"grid": [{"start": {"x": 0, "y": 0}, "end": {"x": 1, "y": 0}}], "shape": [32, 64],
                   "orientation": "ROW_MAJOR"},
}  # fmt: skip
MODULE = """
import ttnn
from tests.sweep_framework.master_config_loader import MasterConfigLoader, unpack_binary_traced_config

loader = MasterConfigLoader()
parameters = {
    "rows": loader.get_suite_parameters("ttnn::add", all_cases=False),
    "named": {"traced_config": ["ttnn::add_traced_0", "ttnn::add_traced_1"]},
}


def mesh_device_fixture():
    device = ttnn.open_device(device_id=0, l1_small_size=24576)
    yield device, "mock n150"
    ttnn.close_device(device)


def make(device, shape, dtype, layout, memory):
    assert isinstance(dtype, ttnn.DataType), type(dtype)
    assert isinstance(layout, ttnn.Layout), type(layout)
    assert isinstance(memory, ttnn.MemoryConfig), type(memory)
    return ttnn.allocate_tensor_on_device(ttnn.Shape(list(shape)), dtype, layout, device, memory)


def run(input_a_shape=None, input_a_dtype=None, input_a_layout=None, input_a_memory_config=None, input_b_shape=None,
        input_b_dtype=None, input_b_layout=None, input_b_memory_config=None, traced_config=None, *, device, **rest):
    if traced_config is not None:
        shapes, da, db, la, lb, ma, mb = unpack_binary_traced_config(traced_config)
        a, b = make(device, shapes["self"], da, la, ma), make(device, shapes["other"], db, lb, mb)
    else:
        a = make(device, input_a_shape, input_a_dtype, input_a_layout, input_a_memory_config)
        b = make(device, input_b_shape, input_b_dtype, input_b_layout, input_b_memory_config)
    made = ttnn.add(a, b)
    assert list(made.shape) == list(a.shape)
    return True, "accepted; no value was compared"
"""


def test_a_sweep_file_of_the_guide_runs_on_real_ttnn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not ttnn_has_torch():
        pytest.skip("the environment has no torch, which sweep modules need")
    sharded = tensor(1, 1, 64, 64) | {"memory_config": SHARDED}
    calls = [{"arg0": tensor(1, 1, 32, 64), "arg1": tensor(1, 1, 32, 64)}, {"arg0": sharded, "arg1": sharded}]
    python = interpreter_of(ttnn_environment())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TTNN_MASTER_JSON_PATH", str(master(tmp_path / "master.json", {"ttnn.add": calls})))
    for name, value in find_board("n150").variables(kernel_cache(python)).items():
        monkeypatch.setenv(name, value)
    Path("add_model_traced.py").write_text(MODULE, encoding="utf-8")

    assert run(["sweep", "generate", "--module-name", "add_model_traced.py", "--python", python]) == EXIT_FINE
    assert run(["sweep", "run", "--python", python]) == EXIT_FINE
    said = capsys.readouterr().out
    assert "FAIL" not in said
    assert int(said.rpartition(" PASS")[0].rpartition("\n")[2]) == 4
