"""The tasks behind the other forms of a failing case: the exported program, an ONNX model and MLIR, as text."""

from __future__ import annotations

import base64
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torchstone.backends.export import converting, exported_program
from torchstone.backends.protocol import first_line
from torchstone.check.child.graph_parts import Arguments
from torchstone.check.child.model import Payload, backend_for
from torchstone.check.child.repro import case_of
from torchstone.foreign import foreign_code
from torchstone.numerics.pytree import named_tensors

_MOST_LITERALS = 512
_MOST_TEXT_BYTES = 4 << 20

Written = Callable[[nn.Module, Arguments], str]


def exported_text(payload: Payload) -> dict[str, object]:
    """A task: the graph that torch.export makes of the case, or why it makes none."""
    with foreign_code() as ran:  # torch.export raises anything; no program is an answer
        module, args = case_of(payload).at(dict(payload["script_sizes"]), payload["script_values"])
        program = exported_program(module, args, {}).program
    if ran.error is not None:
        return {"why": first_line(ran.error)}
    text: str = program.graph_module.print_readable(print_output=False)
    return {"text": text}


def onnx_parts(payload: Payload) -> dict[str, object]:
    """A task: the case as an ONNX model in onnx's own text, its inputs, and what eager gives."""
    import onnx.parser
    import onnx.printer

    def written(module: nn.Module, args: Arguments) -> str:
        exported = exported_program(module, args, {})
        with converting():
            program: Any = torch.onnx.export(exported.program, dynamo=True, verbose=False)
        model = program.model_proto
        graph = model.graph
        known = {one.name for one in graph.initializer}
        kept = [one for one in graph.value_info if one.name not in known]
        del graph.value_info[:]
        graph.value_info.extend(kept)
        for one in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
            del one.metadata_props[:]  # where in the exporter each came from
        text: str = onnx.printer.to_text(model)
        onnx.parser.parse_model(text)  # what cannot be read back is no text of a model
        return text

    return _parts(payload, written)


def mlir_parts(payload: Payload) -> dict[str, object]:
    """A task: the case as the MLIR that the compiler of the backend reads, its inputs, and what eager gives."""
    backend: Any = backend_for(payload["backend"])
    return _parts(payload, lambda module, args: str(backend.mlir_text(module, args, {})))


def _parts(payload: Payload, written: Written) -> dict[str, object]:
    with foreign_code() as ran:  # an exporter raises anything; no text is an answer
        module, args = case_of(payload).at(dict(payload["script_sizes"]), payload["script_values"])
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = [tensor for _, tensor in named_tensors(module(*args))]
            text = written(module, args)
        arrays = [f"[{', '.join(map(_array_source, tensors))}]" for tensors in (list(args), expected)]
    if ran.error is not None:
        return {"why": first_line(ran.error)}
    if len(text) + sum(map(len, arrays)) > _MOST_TEXT_BYTES:
        return {"why": f"it needs {len(text) >> 20} MiB of text"}
    return {"text": text, "inputs": arrays[0], "expected": arrays[1]}


def _array_source(value: Any) -> str:
    """How a script makes an array with numpy; raises TypeError for a type that numpy does not have."""
    if not isinstance(value, Tensor):
        msg = f"an input is no tensor but {type(value).__name__}"
        raise TypeError(msg)
    array = value.detach().contiguous().numpy()
    if array.size <= _MOST_LITERALS and bool(torch.isfinite(value).all()):
        return f"numpy.array({array.reshape(-1).tolist()!r}, dtype={str(array.dtype)!r}).reshape({array.shape})"
    packed = base64.b85encode(zlib.compress(array.tobytes(), 9)).decode("ascii")
    return f"unpacked({packed!r}, {str(array.dtype)!r}, {array.shape})"
