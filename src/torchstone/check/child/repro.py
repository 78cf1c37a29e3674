"""The tasks behind a repro: a program with smaller tensors, its Python text, and the finished script, really run."""

from __future__ import annotations

import io
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchstone.backends.failures import with_causes
from torchstone.backends.program_source import (
    TENSORS_IN_SOURCE,
    backend_source,
    function_source,
    program_source,
    tensor_of,
)
from torchstone.backends.protocol import first_line
from torchstone.check.child.programs import as_written_by_hand, inputs_of_steps, starting_values
from torchstone.check.child.run import run_on_tensors
from torchstone.numerics.dtypes import dtype_name
from torchstone.numerics.tensor_files import usual_stride, write_tensors

_MOST_LITERALS = 512  # elements written into a script; more go to a file beside it


def run_smaller(payload: dict[str, Any]) -> dict[str, Any]:
    """A task: a program after shrinking, with cut values or with random ones."""
    return run_on_tensors(as_written_by_hand(payload["smaller"]), _tensors(payload), payload)


def write_source(payload: dict[str, Any]) -> dict[str, Any]:
    """A task: the program and its inputs as Python; values that are too many go to a file beside it."""
    program = as_written_by_hand(payload["smaller"])
    tensors = _tensors(payload)
    about = {name: _about(tensor, place, payload["tensors"]) for place, (name, tensor) in enumerate(tensors.items())}
    needs_file = payload["tensors"] == "recorded" and any("values" not in one for one in about.values())
    if needs_file:
        write_tensors(Path(payload["values_file"]), tensors)
    needs, compiled = backend_source(payload["backend"]["spec"], payload["backend"]["options"])
    return {
        "needs": needs,
        "compiled": compiled,
        "tensors_in": TENSORS_IN_SOURCE,
        "source": _source_with_file(program, tensors) if needs_file else program_source(program, about),
        "inputs": len(program["inputs"]),
        "constants": len(program["constants"]),
        "shapes": ", ".join(_shown(tensor) for tensor in tensors.values()),
        "needs_file": needs_file,
    }


def _source_with_file(program: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    return (
        "from pathlib import Path\n\nimport torch\n\nfrom torchstone.numerics.tensor_files import read_tensors\n\n\n"
        f"{function_source(program)}\n\n"
        "def inputs():\n"
        '    tensors = read_tensors(Path(__file__).with_suffix(".safetensors"))\n'
        f"    return tuple(tensors[name] for name in {tuple(tensors)!r})\n"
    )


def run_script(payload: dict[str, Any]) -> dict[str, Any]:
    """A task: a repro as its reader would run it."""
    printed = io.StringIO()
    sys.argv = [payload["script"]]
    torch.set_num_threads(1)
    code: Any = 0
    with redirect_stdout(printed):
        try:
            runpy.run_path(payload["script"], run_name="__main__")
        except SystemExit as end:
            code = end.code
        except Exception as error:  # noqa: BLE001 - a script may raise anything, and that is the answer
            chain = " <- ".join(map(first_line, with_causes(error)))
            return {"outcome": "raised", "reason": chain, "error": first_line(error)}
    if not code:
        return {"outcome": "passed"}
    last = [line.partition(": ")[2] for line in printed.getvalue().splitlines() if line.startswith("outcome: ")]
    return {"outcome": last[-1] if last else "raised", "reason": printed.getvalue()[-500:]}


def _tensors(payload: dict[str, Any]) -> dict[str, Tensor]:
    """What the program takes, in order: inputs, then constants."""
    sizes = {int(size): target for size, target in payload["sizes"].items()}
    found = inputs_of_steps(payload, starting_values(payload))
    cut = {name: _cut(found[name].detach(), sizes) for name in payload["program"]["inputs"]}
    cut |= {name: _cut(found[name], sizes) for name in payload["program"]["constants"]}
    if payload["tensors"] == "recorded":
        return cut
    return {name: tensor_of(_about(tensor, place, "random")) for place, (name, tensor) in enumerate(cut.items())}


def _cut(tensor: Tensor, sizes: dict[int, int]) -> Tensor:
    cut = tensor.detach()
    for dimension, size in enumerate(tensor.shape):
        cut = cut.narrow(dimension, 0, sizes.get(size, size))
    if sizes and not cut.is_contiguous():
        cut = cut.clone(memory_format=torch.preserve_format)
    return cut.requires_grad_(tensor.requires_grad)


def _about(tensor: Tensor, seed: int, kind: str) -> dict[str, object]:
    about: dict[str, Any] = {"shape": list(tensor.shape), "dtype": dtype_name(tensor.dtype)}
    if tensor.stride() != usual_stride(tensor.shape):
        about["stride"] = list(tensor.stride())
    if tensor.requires_grad:
        about["requires_grad"] = True
    memory = _memory_of(tensor)
    if kind == "recorded" and len(memory) <= _MOST_LITERALS:
        return about | {"values": memory.tolist()}
    about["seed"] = seed
    if tensor.numel() and not (tensor.is_floating_point() or tensor.is_complex()):
        whole = tensor.long()
        about["whole"] = [int(whole.min()), int(whole.max()) + 1]
    return about


def _memory_of(tensor: Tensor) -> Tensor:
    """The elements that a tensor lies on, in the order of memory; those of a view that repeats itself, once."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.detach().as_strided((last + 1 if tensor.numel() else 0,), (1,))


def _shown(tensor: Tensor) -> str:
    return f"{dtype_name(tensor.dtype)}{list(tensor.shape)}"
