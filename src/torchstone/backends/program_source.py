"""Programs as Python scripts: the steps, seeded inputs, and how a script reaches its backend.

The repro scripts of check and of sweep are made of these parts.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchstone.backends.lookup import entry_point_backends
from torchstone.backends.program import Description, find_op, identifier, returns_one_value, value_source, written_names
from torchstone.backends.program_format import portable

# --- Tensors to run a program on: seeded, equal on every machine with the same torch ---


def random_tensor(
    shape: Sequence[int],
    dtype: torch.dtype = torch.float32,
    *,
    seed: int = 0,
    whole: Sequence[int] = (0, 2),
    stride: Sequence[int] | None = None,
) -> torch.Tensor:
    """Normally distributed floats, or whole numbers from whole[0] up to but without whole[1]."""
    if stride is not None and 0 not in shape:  # laid out as asked, and repeated or overlapping where that is asked
        extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        return random_tensor((extent,), dtype, seed=seed, whole=whole).as_strided(tuple(shape), tuple(stride))
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        return torch.view_as_complex(torch.randn((*shape, 2), generator=generator)).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(tuple(shape), generator=generator).to(dtype)
    return torch.randint(whole[0], whole[1], tuple(shape), generator=generator).to(dtype)


def tensor_of(about: Mapping[str, Any]) -> torch.Tensor:
    """A tensor from its description in JSON: the arguments of `random_tensor`, or `values` for a small one.

    With a `stride` the values are those of the memory it lies on. `requires_grad` says that it wants gradients.
    """
    dtype = getattr(torch, about.get("dtype", "float32"))
    if "values" in about:
        memory = torch.tensor(about["values"], dtype=dtype)
        stride = about.get("stride")
        made = memory.reshape(about["shape"]) if stride is None else memory.as_strided(about["shape"], stride)
    else:
        asked = {name: about[name] for name in ("seed", "whole", "stride") if about.get(name) is not None}
        made = random_tensor(about["shape"], dtype, **asked)
    return made.requires_grad_() if about.get("requires_grad") else made


# --- The backend of a script ---


_INDUCTOR = """\
    import torch._functorch.config
    import torch._inductor.config

    torch._inductor.config.fx_graph_cache = False  # a corrected custom op must be compiled anew
    torch._functorch.config.enable_autograd_cache = False
    return torch.compile(module, backend="inductor", dynamic=False)
"""
_BY_TORCH = {  # backends that a script reaches without torchstone: what it needs, and the body of `compiled`
    "eager": ("torch", "    return module\n"),
    "aot_eager": ("torch", '    return torch.compile(module, backend="aot_eager", dynamic=False)\n'),
    "inductor": ("torch and a C++ compiler", _INDUCTOR),
}
_ONNXRUNTIME = """\
    import io

    import onnxruntime

    program = torch.onnx.export(torch.export.export(module, tuple(args), strict=False), dynamo=True, verbose=False)
    model = io.BytesIO()
    program.save(model)
    session = onnxruntime.InferenceSession(model.getvalue(), providers=["CPUExecutionProvider"])

    def value_of(tensor):
        if tensor.dtype is torch.bfloat16:  # numpy has no such type; 16 is its number in ONNX
            return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(tensor.view(torch.int16).numpy(), 16)
        return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy())

    def tensor_of(value):
        is_bfloat16 = value.data_type() == "tensor(bfloat16)"
        return torch.from_dlpack(value).clone() if is_bfloat16 else torch.from_numpy(value.numpy())

    def run(*tensors):
        plain = [tensor.detach().contiguous() for tensor in tensors]
        feeds = {one.name: value_of(tensor) for one, tensor in zip(session.get_inputs(), plain)}
        return [tensor_of(value) for value in session.run_with_ort_values(None, feeds)]

    return run
"""
_OPENVINO = """\
    import openvino

    program = torch.export.export(module, tuple(args), strict=False)
    model = openvino.convert_model(program)
    names = list(program.graph_signature.user_inputs)
    places = [names.index(one.get_any_name()) for one in model.inputs]
    model.reshape({number: openvino.PartialShape(list(args[place].shape)) for number, place in enumerate(places)})
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}
    loaded = openvino.compile_model(model, "CPU", settings)

    def run(*tensors):
        found = loaded([tensors[place].detach().contiguous().numpy() for place in places])
        return [torch.from_numpy(found[output].copy()) for output in loaded.outputs]

    return run
"""
_BY_TORCH |= {
    "onnxruntime": ("torch, onnx, onnxscript and onnxruntime", _ONNXRUNTIME),
    "openvino": ("torch and openvino", _OPENVINO),
}
_FROM_FILE = """\
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location({stem!r}, {file!r})
    home = module_from_spec(spec)
    spec.loader.exec_module(home)
    backend = home.{name}(**{options!r})
    backend.warm_up()
    return backend.compile(module, args, {{}})
"""
_FROM_PACKAGE = """\
    from {package} import {name}

    backend = {name}(**{options!r})
    backend.warm_up()
    return backend.compile(module, args, {{}})
"""
_BY_TORCHSTONE = """\
    from torchstone.backends import open_backend

    backend = open_backend({backend!r}, {options!r})
    backend.warm_up()
    return backend.compile(module, args, {{}})
"""
_COMMAND = """\
    import shlex
    import subprocess
    import tempfile

    folder = tempfile.mkdtemp()
    files = {{"{{program}}": f"{{folder}}/program.pt2", "{{inputs}}": f"{{folder}}/inputs.pt"}}
    torch.export.save(torch.export.export(module, tuple(args), strict=False), files["{{program}}"])
    torch.save(list(args), files["{{inputs}}"])
    words = shlex.split({command!r})
    for name, file in files.items():
        words = [word.replace(name, file) for word in words]
    code = subprocess.run(words, cwd={folder!r}).returncode
    if code:
        import signal

        ended = f"was ended by {{signal.Signals(-code).name}}" if code < 0 else f"fails with {{code}}"
        raise RuntimeError(f"the command {{ended}}")
    return module
"""
TENSORS_IN_SOURCE = """\
def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value or () for tensor in tensors_in(part)] if isinstance(value, (list, tuple)) else []
"""


def backend_source(backend: str, options: Mapping[str, object]) -> tuple[str, str]:
    """What a script needs to run a backend, and the text of its function `compiled(module, args)`."""
    file, _, name = backend.partition("::")
    package, _, inner = entry_point_backends().get(backend, backend).partition(":")
    if backend in _BY_TORCH and not options:
        needs, body = _BY_TORCH[backend]
    elif backend == "command":
        needs, body = f"torch and the command {options['command']}", _COMMAND.format(**{"folder": ".", **options})
    elif name:
        path = Path(file).resolve()
        needs = f"torch and {path}"
        body = _FROM_FILE.format(stem=path.stem, file=str(path), name=name, options=dict(options))
    elif inner:
        needs = f"torch and {package}"
        body = _FROM_PACKAGE.format(package=package, name=inner, options=dict(options))
    else:
        needs = f"torch and torchstone with the backend {backend}"
        body = _BY_TORCHSTONE.format(backend=backend, options=dict(options))
    return needs, f"def compiled(module, args):\n{body}"


# --- The steps and inputs of a script, which need torch alone ---


def program_source(description: Description, tensors: Mapping[str, Mapping[str, object]]) -> str:
    """A script with `program`, the steps as a function, and `inputs`, which makes what it takes.

    `tensors` says for each input and constant how it is made, in the form of `tensor_of`.
    """
    needs_random = any("values" not in about for about in tensors.values())
    parts = ["from __future__ import annotations\n\nimport torch\n"]
    if needs_random:
        parts[0] = "from __future__ import annotations\n\nfrom collections.abc import Sequence\n\nimport torch\n"
        parts.append(inspect.getsource(random_tensor))
    parts += [function_source(description), inputs_source(description, tensors)]
    return "\n\n".join(parts)


def function_source(description: Description, *, name: str = "program") -> str:
    """The steps of a program as the text of a function; inputs come first, then constants."""
    description = portable(description)
    takes = [identifier(one) for one in (*description["inputs"], *description.get("constants", ()))]
    lines = [f"def {name}({', '.join(takes)}):"]
    lines += [f"    {one} = {one}.clone()  # a step writes to it" for one in sorted(written_names(description))]
    lines += [f"    {_step_source(step)}" for step in description["steps"]]
    trees = [value_source(tree) for tree in description["outputs"]]
    given = trees[0] if len(trees) == 1 else f"({', '.join(trees)})"
    return "\n".join([*lines, f"    return {given}"]) + "\n"


def inputs_source(description: Description, tensors: Mapping[str, Mapping[str, object]]) -> str:
    """A function that gives the tensors that `program` takes, in order."""
    takes = (*description["inputs"], *description.get("constants", ()))
    rows = [f"        {tensor_source(tensors[one])},  # {identifier(one)}" for one in takes]
    return "\n".join(["def inputs():", "    return (", *rows, "    )"]) + "\n"


def _step_source(step: Mapping[str, Any]) -> str:
    op = step["op"]
    given = [value_source(argument) for argument in step.get("args", ())]
    given += [f"{identifier(name)}={value_source(argument)}" for name, argument in step.get("kwargs", {}).items()]
    call = f"torch.ops.{op}({', '.join(given)})"
    outputs = step["outputs"]
    if not outputs:
        return call
    if returns_one_value(find_op(op)):
        return f"{_target(outputs[0])} = {call}"
    return f"{_target(list(outputs))} = {call}"


def _target(outputs: Any) -> str:
    if outputs is None:
        return "_"
    if isinstance(outputs, str):
        return identifier(outputs)
    inner = ", ".join(map(_target, outputs))
    return f"({inner},)" if len(outputs) == 1 else f"({inner})"


def tensor_source(about: Mapping[str, Any]) -> str:
    """How a script makes a tensor, in the form of `tensor_of`."""
    dtype = f"torch.{identifier(about.get('dtype', 'float32'))}"
    shape = tuple(about["shape"])
    wants = ".requires_grad_()" if about.get("requires_grad") else ""
    if "values" in about:
        stride = about.get("stride")
        laid_out = f"reshape({shape})" if stride is None else f"as_strided({shape}, {tuple(stride)})"
        return f"torch.tensor({_values_source(about['values'])}, dtype={dtype}).{laid_out}{wants}"
    more = "".join(
        f", {name}={tuple(about[name]) if isinstance(about[name], (list, tuple)) else int(about[name])}"
        for name in ("seed", "whole", "stride")
        if about.get(name) is not None
    )
    return f"random_tensor({shape}, {dtype}{more}){wants}"


def _values_source(values: object) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_values_source, values))}]"
    return f"float({str(values)!r})" if isinstance(values, float) and values - values != 0 else repr(values)
