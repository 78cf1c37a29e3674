"""Runs in the environment of torch_xla, where neither torchstone nor pytest is installed; prints one JSON document.

`python in_xla.py SOURCES TESTS PROGRAMS` where the folders are those of the package and of these tests, and the file
holds recorded ops: name -> [program, how to make its tensors].
"""

import json
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path[0:1] = [sys.argv[1], sys.argv[2]]

import torch  # noqa: E402 - the folders come first

from tests.backends.nets import nested, two_layers  # noqa: E402 - the same
from torchstone.backends.lookup import open_backend  # noqa: E402 - the same
from torchstone.backends.program import program_module  # noqa: E402 - the same
from torchstone.backends.program_source import tensor_of  # noqa: E402 - the same
from torchstone.backends.protocol import NotRun, Unsupported  # noqa: E402 - the same
from torchstone.numerics.verdict import judge  # noqa: E402 - the same

CPU = {"atom": {"kind": "device", "text": "cpu"}}  # where it was recorded


class Airy(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.airy_ai(x) + 1


def run_a_module(options: dict[str, Any]) -> dict[str, Any]:
    backend = open_backend("xla", options)
    backend.warm_up()
    module, args, kwargs = nested()
    expected = module(*args, **kwargs)
    verdict = judge(expected, backend.compile(module, args, kwargs)(*args, **kwargs))
    stages = backend.export(module, args, kwargs)
    backend.reset()
    devices = {str(parameter.device) for parameter in module.parameters()}
    return {"verdict": verdict, "stages": stages, "devices": sorted(devices)}


def run_a_program() -> dict[str, Any]:
    """A recorded line of ops, as another torch wrote it."""
    steps = [
        {"op": "aten.mm.default", "kwargs": {"self": {"tensor": "x"}, "mat2": {"tensor": "w"}}, "outputs": ["a"]},
        {"op": "aten.max.dim", "args": [{"tensor": "a"}, 0], "kwargs": {"keepdim": False}, "outputs": ["b", None]},
        {"op": "aten.arange.default", "args": [3], "kwargs": {"device": CPU}, "outputs": ["c"]},
        {"op": "aten.sub.Tensor", "args": [{"tensor": "b"}, {"tensor": "c"}], "kwargs": {}, "outputs": ["t"]},
    ]
    described = {"inputs": ["x"], "constants": ["w"], "steps": steps, "outputs": [{"tensor": "t"}]}
    module = program_module(described, {"w": torch.eye(3)})
    x = torch.arange(6.0).reshape(2, 3)
    result = open_backend("xla").compile(module, (x,), {})(x)
    return {"result": result.tolist(), "device": str(result.device)}


def run_recorded_ops(path: str) -> dict[str, str]:
    """Each program of a file on random inputs, against eager of this torch."""
    endings = {}
    backend = open_backend("xla")
    for name, (described, tensors) in json.loads(Path(path).read_text()).items():
        inputs = tuple(tensor_of(tensors[one]) for one in described["inputs"])
        module = program_module(described)
        try:
            verdict = judge(module(*inputs), backend.compile(module, inputs, {})(*inputs))
        except Unsupported as error:
            endings[name] = f"unsupported {error}"
        else:
            endings[name] = "passed" if verdict["passed"] else f"wrong {verdict['reason']}"
    return endings


def refusal(options: dict[str, Any]) -> dict[str, Any]:
    backend = open_backend("xla", options)
    try:
        result = backend.compile(Airy(), (torch.ones(2),), {})(torch.ones(2))
    except Unsupported as error:
        return {"message": str(error), "ops": error.ops}
    return {"result": result.tolist()}


def compile_options() -> str:
    try:
        open_backend("xla", {"compile_options": {"dry_run": True}}).compile(Airy(), (torch.ones(2),), {})
    except Unsupported as error:
        return str(error)
    return ""


def tt_on_the_cpu() -> dict[str, Any]:
    """The tt code path on the CPU device, with a stand-in for the part of torch_xla that only its own build has."""
    import torch_xla

    given: list[dict[str, str]] = []

    def hand_over(options: dict[str, str]) -> None:
        given.append(dict(options))
        if "export_path" in options:
            folder = Path(options["export_path"]) / "irs"
            folder.mkdir(parents=True)
            for stage in ("ttnn_runtime", "ttnn", "ttir", "shlo_compiler"):
                (folder / f"{stage}_{options['export_model_name']}_g0_17.mlir").write_text(f"// {stage}\n")
            (folder / "shlo_compiler_cleaned_17.mlir").write_text("// shlo_compiler_cleaned\n")

    torch_xla.set_custom_compile_options = hand_over
    on_cpu = {"device": "CPU", "path": "openxla", "compile_options": {"optimization_level": 1, "enable_trace": False}}
    module, x = two_layers()
    backend = open_backend("tt", on_cpu)
    verdict = judge(module(x), backend.compile(module, (x,), {})(x))
    stages = backend.export(module, (x,), {})
    try:
        open_backend("tt", {**on_cpu, "system_desc": "n150.ttsys"}).compile(module, (x,), {})(x)
    except NotRun as error:
        compiled_only = str(error)
    return {"passed": verdict["passed"], "stages": stages, "given": given, "compiled_only": compiled_only}


def answers() -> dict[str, Any]:
    return {
        "lazy": run_a_module({}),
        "openxla": run_a_module({"path": "openxla"}),
        "program": run_a_program(),
        "recorded": run_recorded_ops(sys.argv[3]),
        "refusal": refusal({}),
        "fallback": refusal({"allow_fallback": True}),
        "compile_options": compile_options(),
        "tt": tt_on_the_cpu(),
    }


if __name__ == "__main__":
    try:
        print(json.dumps(answers()))  # noqa: T201 - the answer
    except Exception:  # noqa: BLE001 - a process border: the test shows what went wrong
        traceback.print_exc()
        sys.exit(1)
