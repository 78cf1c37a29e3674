import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.backends.test_program import X, Y, program, step
from torchstone.backends.program import program_module
from torchstone.backends.program_format import ProgramError
from torchstone.backends.program_source import backend_source, function_source, program_source, tensor_of
from torchstone.backends.protocol import Unsupported

DESCRIBED = program(
    step("aten.add_.Tensor", X, 1.5, outputs=["x"]),
    step("aten.max.dim", X, 0, outputs=["a", None]),
    step("aten.split.Tensor", {"tensor": "a"}, 2, outputs=["b", "c"]),
    step("aten.masked_fill.Scalar", {"tensor": "b"}, Y, {"atom": {"kind": "float", "text": "-inf"}}, outputs=["d"]),
    step("aten.cat.default", {"list": [{"tensor": "d"}, {"tensor": "c"}, {"tensor": "w"}]}, outputs=["t"]),
    inputs="x y",
    constants="w",
    outputs="t b",
)
TENSORS: dict[str, dict[str, Any]] = {
    "x": {"shape": [3, 4], "dtype": "float32", "seed": 3, "stride": [1, 3]},
    "y": {"shape": [2], "dtype": "bool", "seed": 1, "whole": [0, 2]},
    "w": {"shape": [3], "dtype": "float32", "values": [1.0, float("nan"), float("-inf")]},
}


def test_the_script_computes_what_the_module_computes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    saving = "torch.save(dict(zip('tb', program(*inputs()))), 'result.pt')\n"
    script.write_text(program_source(DESCRIBED, TENSORS) + "\n\n" + saving, encoding="utf-8")

    subprocess.run([sys.executable, "-I", str(script)], cwd=tmp_path, check=True, timeout=600)

    made = {name: tensor_of(about) for name, about in TENSORS.items()}
    expected = program_module(DESCRIBED, {"w": made["w"]})(made["x"], made["y"])
    result = torch.load(tmp_path / "result.pt", weights_only=True)
    assert torch.equal(result["t"].nan_to_num(), expected[0].nan_to_num())
    assert torch.equal(result["b"], expected[1])


def test_the_function_reads_like_torch() -> None:
    described = program(step("aten.mm.default", outputs=["t"], self=X, mat2=Y), inputs="x y")

    assert function_source(described) == (
        "def program(x, y):\n    t = torch.ops.aten.mm.default(self=x, mat2=y)\n    return t\n"
    )


def test_a_script_without_random_inputs_is_short() -> None:
    described = program(step("aten.relu.default", X, outputs=["t"]))

    source = program_source(described, {"x": {"shape": [1], "values": [-1.0]}})
    assert "random" not in source
    assert len(source.splitlines()) < 20


def test_a_script_lays_its_tensors_out_as_they_were() -> None:
    described = program(step("aten.relu.default", X, outputs=["t"]))

    about = {"shape": [2, 1], "stride": [0, 1], "values": [3.0], "requires_grad": True}
    source = program_source(described, {"x": about})

    assert "torch.tensor([3.0], dtype=torch.float32).as_strided((2, 1), (0, 1)).requires_grad_()," in source


@pytest.mark.parametrize(
    "described",
    [
        program(step("aten.relu.default", X, outputs=["t; import os"])),
        program(step("aten.relu.default(x); print", X, outputs=["t"])),
        program(step("aten.relu.default", {"tensor": "x, print"}, outputs=["t"])),
        program(inputs="class", outputs="class"),
    ],
)
def test_a_name_that_is_code_is_refused(described: dict[str, Any]) -> None:
    with pytest.raises((ProgramError, Unsupported)):
        function_source(described)


@pytest.mark.parametrize(("backend", "needs"), [("inductor", "torch and a C++ compiler"), ("aot_eager", "torch")])
def test_backends_of_torch_need_no_torchstone(backend: str, needs: str) -> None:
    found, text = backend_source(backend, {})

    assert found == needs
    assert "torchstone" not in text


@pytest.mark.parametrize(("backend", "options"), [("iree", {}), ("inductor", {"fullgraph": True})])
def test_other_backends_and_options_need_torchstone(backend: str, options: dict[str, object]) -> None:
    needs, text = backend_source(backend, options)

    assert needs == f"torch and torchstone with the backend {backend}"
    assert f"open_backend({backend!r}, {options!r})" in text
