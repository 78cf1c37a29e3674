"""The tasks behind a script: steps of a graph as Python, with small sizes and values that still fail; and its run."""

from __future__ import annotations

import base64
import contextlib
import inspect
import io
import os
import re
import runpy
import subprocess
import sys
import warnings
import zlib
from collections.abc import Mapping
from operator import getitem
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._library.custom_ops import OPDEFS

from torchstone.backends.gradients import gradients_source
from torchstone.backends.program_source import (
    TENSORS_IN_SOURCE,
    backend_source,
    random_tensor,
    tensor_of,
    tensor_source,
)
from torchstone.backends.protocol import Backend
from torchstone.check.child.graph_parts import Arguments
from torchstone.check.child.graphs import chosen_parts, ends_alike, received, subject_of_part
from torchstone.check.child.model import Payload, backend_for
from torchstone.check.child.run import attempt
from torchstone.foreign import foreign_code
from torchstone.numerics.dtypes import dtype_name
from torchstone.numerics.tensor_files import usual_stride
from torchstone.temporary import temporary_folder
from torchstone.workers.shrink import Sizes, one_by_one, shrink_sizes

_MOST_RUNS = 16
_MOST_EMBEDDED_BYTES = 24 << 20
_SIZED = ("view", "reshape", "expand", "_unsafe_view", "unflatten", "new_zeros", "new_ones", "zeros", "ones", "full")
_MOST_LITERALS = 512  # elements written as numbers; more are packed
_MOST_OUTPUT = 2_000
_HERE = 40  # what a script adds to its exit code where it runs in one process


def part_source(payload: Payload) -> dict[str, object]:
    """A task: chosen steps as the parts of a script. `tensors` says which values: random, recorded, or what fails."""
    case = case_of(payload)
    sizes: Sizes = {}
    kind = payload["tensors"]
    if kind == "smallest":
        sizes = case.smallest()
        kind = "random" if case.fails(sizes, "random") else "recorded"
    tolerance = case.tolerances.get((tuple(sorted(sizes.items())), kind), {})
    found = {"sizes": sorted(sizes.items()), "values": kind, "tolerance": tolerance}
    return found | source_parts(*case.at(sizes, "recorded"), kind, payload)  # random ones are described by these


def case_of(payload: Payload) -> Case:
    """The chosen steps of a unit, with the values that eager gives them."""
    _, graphs = received(payload)
    (_, part, inputs), *_ = chosen_parts(graphs, payload["chosen_steps"])
    return Case(part.module, inputs, backend_for(payload["backend"]), payload)


def source_parts(module: fx.GraphModule, args: Arguments, kind: str, payload: Payload) -> dict[str, object]:
    """A module with its arguments as the parts of a script; without a source where it would be too long."""
    attributes = tensors_of(module)
    abouts = {name: _about(tensor, seed, kind) for seed, (name, tensor) in enumerate(attributes.items())}
    given = [_about(tensor, len(abouts) + seed, kind) for seed, tensor in enumerate(args)]
    embedded = sum(len(one.get("packed", "")) for one in (*abouts.values(), *given))
    if embedded > _MOST_EMBEDDED_BYTES:
        return {"source": "", "why": f"its values need {embedded >> 20} MiB of text"}
    needs, compiled = backend_source(payload["backend"]["spec"], payload["backend"]["options"])
    return {
        "source": _module_source(module, abouts) + "\n\n" + _inputs_source(given),
        "compiled": compiled,
        "needs": needs,
        "tensors_in": TENSORS_IN_SOURCE,
        "nodes": sum(node.op.startswith("call_") and node.target is not getitem for node in module.graph.nodes),
        "shapes": ", ".join(_shown(tensor) for tensor in (*args, *attributes.values())),
        "registered_by": registering_packages(module),
        "outputs_of": f"{gradients_source()}\n\n{_OUTPUTS_AND_GRADIENTS}" if payload.get("backward") else _OUTPUTS,
    }


def registering_packages(module: fx.GraphModule) -> list[str]:
    """The installed modules whose import makes the custom ops of a graph: importing their package may be too lazy."""
    ops = [node.target for node in module.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    makers = (OPDEFS.get(op._schema.name) for op in ops if op.namespace not in ("aten", "prims"))
    names = {maker._init_fn.__module__ for maker in makers if maker is not None}
    return sorted(name for name in names if _is_installed(name))


def _is_installed(module: str) -> bool:
    """Whether a script in another folder could import a module: the user's own files cannot be imported by name."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


_OUTPUTS = """\
def outputs_of(run, module, args):
    with torch.no_grad():
        return tensors_in(run(*args))
"""
_OUTPUTS_AND_GRADIENTS = """\
def outputs_of(run, module, args):
    outputs, gradients = with_gradients(run, module, args, {})
    return [one.detach() for one in tensors_in(outputs)] + list(gradients.values())
"""


class Case:
    """A part with its inputs, tried with other sizes and values in this process."""

    def __init__(self, module: fx.GraphModule, inputs: Arguments, backend: Backend, payload: Payload) -> None:
        self._module = module
        self._inputs = inputs
        self._backend = backend
        self._payload = {**payload, "stage_file": "", "irs": ""}
        self.tolerances: dict[tuple[Any, str], Mapping[str, Any]] = {}

    def smallest(self) -> Sizes:
        """The smallest sizes with which the recorded values fail as before."""
        shapes = [tensor.shape for tensor in (*self._inputs, *tensors_of(self._module).values())
                  if isinstance(tensor, Tensor)]  # fmt: skip
        return shrink_sizes(shapes, one_by_one(lambda sizes: self.fails(sizes, "recorded")), most_runs=_MOST_RUNS)

    def fails(self, sizes: Sizes, kind: str) -> bool:
        """Whether it fails as it was found."""
        with foreign_code() as ran:  # sizes that do not fit together raise anything
            answer = self.tried(*self.at(sizes, kind))
        if ran.error is not None:
            return False
        self.tolerances[tuple(sorted(sizes.items())), kind] = answer.get("tolerance") or {}
        return ends_alike(answer, self._payload["found"])

    def tried(self, module: fx.GraphModule, args: Arguments) -> dict[str, Any]:
        """How a module ends on the backend; raises what eager raises."""
        subject = subject_of_part(module, args)
        answer = attempt(subject, self._backend, self._payload)
        self._backend.reset()
        return answer

    def at(self, sizes: Sizes, kind: str) -> tuple[fx.GraphModule, Arguments]:
        """The part with smaller sizes, and its arguments."""
        module = resized(self._module, sizes)
        for name, tensor in tensors_of(module).items():
            set_tensor(module, name, _cut(tensor, sizes), tensor)
        args = tuple(_cut(value, sizes) if isinstance(value, Tensor) else value for value in self._inputs)
        return revalued(module, args, kind)


def _valued(tensor: Tensor, seed: int, kind: str) -> Tensor:
    return tensor_of(_about_tensor(tensor, seed, "random")) if kind == "random" else tensor


def revalued(module: fx.GraphModule, args: Arguments, kind: str) -> tuple[fx.GraphModule, Arguments]:
    """A module, changed in place, and its arguments with the values of a kind."""
    attributes = tensors_of(module)
    for seed, (name, tensor) in enumerate(attributes.items()):
        set_tensor(module, name, _valued(tensor.detach(), seed, kind), tensor)
    return module, tuple(
        _valued(value, len(attributes) + seed, kind) if isinstance(value, Tensor) else value
        for seed, value in enumerate(args)
    )


def set_tensor(module: nn.Module, name: str, value: Tensor, like: Tensor) -> None:
    """Put a tensor in the place of a parameter or buffer."""
    if isinstance(like, nn.Parameter):
        setattr(module, name, nn.Parameter(value.detach(), requires_grad=like.requires_grad))
    else:
        wants = like.requires_grad and (value.is_floating_point() or value.is_complex())
        setattr(module, name, nn.Buffer(value.detach().requires_grad_(wants)))


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers that a part has itself."""
    return {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}


def resized(module: fx.GraphModule, sizes: Sizes) -> fx.GraphModule:
    """A copy whose nodes that name sizes name the smaller ones."""
    graph = fx.Graph()
    nodes: dict[fx.Node, fx.Node] = {}
    root = nn.Module()
    for name, tensor in tensors_of(module).items():
        set_tensor(root, name, tensor, tensor)
    for name, inner in module.named_children():
        root.add_module(name, inner)
    for node in module.graph.nodes:
        made = nodes[node] = graph.node_copy(node, nodes.__getitem__)
        packet = str(node.target).split(".")[1] if "." in str(node.target) else str(node.target)
        if packet in _SIZED and sizes:
            made.args = (made.args[0], *(_with_sizes(value, sizes) for value in made.args[1:]))
    return fx.GraphModule(root, graph, class_name="Part").eval()


def _with_sizes(value: object, sizes: Sizes) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_with_sizes(item, sizes) for item in value)
    return sizes.get(value, value) if type(value) is int else value


def _cut(tensor: Tensor, sizes: Sizes) -> Tensor:
    cut = tensor.detach()
    for dimension, size in enumerate(tensor.shape):
        cut = cut.narrow(dimension, 0, sizes.get(size, size))
    if sizes and not cut.is_contiguous():
        cut = cut.clone(memory_format=torch.preserve_format)
    return cut.requires_grad_(tensor.requires_grad)


def _about_tensor(tensor: Tensor, seed: int, kind: str) -> dict[str, object]:
    about: dict[str, object] = {"shape": list(tensor.shape), "dtype": dtype_name(tensor.dtype)}
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


# --- Python text ---


def _about(value: Any, seed: int, kind: str) -> dict[str, Any]:
    """How a script makes a value: from a seed, from literals, or from packed bytes."""
    if not isinstance(value, Tensor):
        return {"literal": repr(value)}
    about = _about_tensor(value, seed, kind)
    if kind == "random" or "values" in about:
        return about
    memory = _memory_of(value).contiguous()
    content = memory.view(torch.uint8).numpy().tobytes() if memory.dtype != torch.bool else memory.numpy().tobytes()
    return {**about, "packed": base64.b85encode(zlib.compress(content, 9)).decode("ascii")}


def _value_source(about: Mapping[str, Any]) -> str:
    if "literal" in about:
        return str(about["literal"])
    if "packed" not in about:
        return tensor_source(about)
    stride = about.get("stride") or usual_stride(torch.Size(about["shape"]))
    return f"unpacked({about['packed']!r}, torch.{about['dtype']}, {tuple(about['shape'])}, {tuple(stride)})"


_UNPACKED = """\
def unpacked(text, dtype, shape, stride):
    content = bytearray(zlib.decompress(base64.b85decode(text)))
    memory = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
    return memory.as_strided(shape, stride)
"""


def _module_source(module: fx.GraphModule, abouts: Mapping[str, Mapping[str, object]]) -> str:
    code = module.graph.python_code(root_module="self")
    lines = ["class Part(torch.nn.Module):", "    def __init__(self):", "        super().__init__()"]
    for name, about in abouts.items():
        tensor = getattr(module, name)
        made = _value_source(about if not isinstance(tensor, nn.Parameter) else {**about, "requires_grad": False})
        if isinstance(tensor, nn.Parameter):
            lines.append(f"        self.{name} = torch.nn.Parameter({made}, requires_grad={tensor.requires_grad})")
        else:
            lines.append(f"        self.register_buffer({name!r}, {made})")
    body = [f"    {line}" if line else "" for line in code.src.strip().splitlines()]
    helpers = f"{inspect.getsource(random_tensor)}\n\n{_UNPACKED}\n\n"
    used = {name: value for name, value in code.globals.items() if re.search(rf"\b{re.escape(name)}\b", code.src)}
    return _imports(used) + helpers + "\n".join([*lines, "", *body]) + "\n"


def _imports(names: Mapping[str, object]) -> str:
    """What the code of a graph refers to."""
    lines = []
    for name, value in names.items():
        if isinstance(value, ModuleType):
            lines.append(f"import {value.__name__}" if value.__name__ == name else f"import {value.__name__} as {name}")
        elif isinstance(value, float):
            lines.append(f"from math import {name}" if name in ("inf", "nan") else f"{name} = {value!r}")
        elif hasattr(value, "__module__") and hasattr(value, "__qualname__") and value.__module__ != "builtins":
            lines.append(f"from {value.__module__} import {value.__qualname__} as {name}")
    wanted = ["import base64", "import zlib", "from collections.abc import Sequence", "", "import torch"]
    return "\n".join([*wanted, *(line for line in lines if line != "import torch")]) + "\n\n\n"


def _inputs_source(given: list[dict[str, object]]) -> str:
    rows = [f"        {_value_source(about)},  # i{number}" for number, about in enumerate(given)]
    return "\n".join(["def inputs():", "    return (", *rows, "    )"]) + "\n"


def _shown(value: object) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    return f"{dtype_name(value.dtype)}{list(value.shape)}"


# --- The finished script ---


def run_script(payload: Payload) -> dict[str, object]:
    """A task: a script as its reader would run it, from a folder with nothing in it."""
    with temporary_folder("repro") as folder:
        done = subprocess.run(  # noqa: S603 - a script that this check wrote
            [sys.executable, payload["script"]], cwd=folder, capture_output=True, text=True, errors="replace",
            check=False, timeout=payload["deadline_s"], env=_environment(),
        )  # fmt: skip
    return _said(done.returncode, done.stdout, done.stderr)


def _environment() -> dict[str, str]:
    """The environment of this process, with relative folders of modules made absolute: the script runs elsewhere."""
    found = dict(os.environ)
    if "PYTHONPATH" in found:
        folders = [str(Path(one).absolute()) for one in found["PYTHONPATH"].split(os.pathsep) if one]
        found["PYTHONPATH"] = os.pathsep.join(folders)
    return found


def run_script_here(payload: Payload) -> dict[str, object]:
    """A task: a script in this copy of a process that has torch and the backend loaded, which saves both imports."""
    printed, before, arguments = io.StringIO(), Path.cwd(), sys.argv
    with temporary_folder("repro") as folder, contextlib.redirect_stdout(printed):
        os.chdir(folder)
        sys.argv = [payload["script"], "--here"]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default")  # as in a process of its own, whatever this one makes of warnings
                runpy.run_path(payload["script"], run_name="__main__")
            code = 0
        except SystemExit as left:
            code = int(left.code or 0) % _HERE
        finally:
            os.chdir(before)
            sys.argv = arguments
    return _said(code, printed.getvalue(), "")


def _said(code: int, output: str, errors: str) -> dict[str, object]:
    printed = output.splitlines()
    said = [line.partition(": ")[2] for line in printed if line.startswith("outcome: ")]
    if code not in (0, 1) or not said:
        return {"outcome": "not run", "reason": f"exit code {code}: {(output + errors)[-_MOST_OUTPUT:]}"}
    reason = " <- ".join(line for line in printed if not line.startswith("outcome: "))[-_MOST_OUTPUT:]
    return {"outcome": said[-1], "reason": reason} if code else {"outcome": "passed", "reason": reason}
