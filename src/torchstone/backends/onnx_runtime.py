"""ONNX: torch.onnx exports the module, ONNX Runtime runs it on the CPU."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from torchstone.backends.protocol import Args, Availability, CompileFailed, Kwargs, Run, Unsupported, availability_of
from torchstone.temporary import temporary_folder

if TYPE_CHECKING:
    from torch import Tensor, nn

    from torchstone.backends.export import Exported
    from torchstone.backends.failures import Refusal

_MISSING_KERNEL = re.compile(r"Could not find an implementation for (?P<op>[\w.]+)\(")
_LARGEST_IN_MEMORY_BYTES = 1 << 30  # a model of more than 2 GB cannot be one protocol buffer


class OnnxRuntime:
    """torch.onnx.export and ONNX Runtime's CPU provider; light to install, quick to compile."""

    name = "onnxruntime"
    forks = True

    def availability(self) -> Availability:
        """Needs onnx, onnxscript and onnxruntime."""
        return availability_of(
            ["torch", "onnx", "onnxscript", "onnxruntime"], needs="pip install 'torchstone[onnxruntime]'"
        )

    def warm_up(self) -> None:
        """Import the exporter and the runtime; sessions, which have threads, come later."""
        from torchstone.backends.export import import_exporter

        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells which packages are not installed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import onnxruntime
            import onnxscript  # noqa: F401 - the import is the work
        onnxruntime.set_default_logger_severity(3)  # errors only
        import_exporter()
        _export_for_the_first_time()

    def export(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, str]:
        """The ONNX model as text, without the values of large weights."""
        _, program = self._exported(module, args, kwargs)
        return {"onnx": str(program.model)}

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:
        """Export the module and load it into the runtime."""
        exported, program = self._exported(module, args, kwargs)
        session = _session(program)
        return exported.nested(lambda tensors: _run(session, tensors))

    def reset(self) -> None:
        """Nothing is kept."""

    def _exported(self, module: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Exported, Any]:
        import torch

        from torchstone.backends.export import converting, exported_program

        self.warm_up()
        exported = exported_program(module, args, kwargs)
        with converting(classify_error):
            return exported, torch.onnx.export(exported.program, dynamo=True, verbose=False)


@cache
def _export_for_the_first_time() -> None:
    """Export something small, so that a fork has what the exporter makes; its table of translations is then kept.

    It would make that table anew for every export, from the sources of some five hundred functions: that takes longer
    than all the rest.
    """
    import torch
    from torch.onnx._internal.exporter import _registration

    from torchstone.backends.export import converting, exported_program

    registry = _registration.ONNXRegistry
    registry.from_torchlib = staticmethod(cache(registry.from_torchlib))  # type: ignore[method-assign]
    program = exported_program(torch.nn.Linear(1, 1), (torch.zeros(1, 1),), {}).program
    with converting():
        torch.onnx.export(program, dynamo=True, verbose=False)


def classify_error(error: Exception) -> Refusal:
    """What the exporter's or the runtime's error means: an op that it does not have, or a failure to compile."""
    from torchstone.backends.failures import with_causes
    from torchstone.backends.op_info import ops_named_in
    from torchstone.backends.protocol import first_line

    cause = with_causes(error)[-1]
    if type(cause).__name__ == "DispatchError" or isinstance(cause, NotImplementedError):
        return Unsupported(first_line(cause), ops=ops_named_in(f"{cause}\n{error}")[:1])
    missing = _MISSING_KERNEL.search(str(error))
    if missing or type(error).__name__ == "NotImplemented":
        return Unsupported(first_line(error), ops=(f"onnx.{missing['op']}",) if missing else ())
    return CompileFailed(first_line(cause))


def _session(program: Any) -> object:
    from onnxruntime import InferenceSession, SessionOptions

    from torchstone.backends.failures import compiling

    options = SessionOptions()
    options.intra_op_num_threads = 1
    weights_bytes = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
    with compiling(classify_error), temporary_folder("onnx") as folder:
        path = folder / "model.onnx"
        program.save(str(path), external_data=weights_bytes > _LARGEST_IN_MEMORY_BYTES)
        return InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


_ELEMENT_TYPES = {  # of ONNX, for what numpy itself does not have
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
    "float8_e8m0fnu": 24,
}


def _run(session: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
    from torchstone.backends.arrays import array_of

    arrays = [array_of(tensor) for tensor in tensors]  # the values refer to them while the session runs
    feeds = {wanted.name: _value_of(array) for wanted, array in zip(session.get_inputs(), arrays, strict=True)}
    return [_tensor_of(value) for value in session.run_with_ort_values(None, feeds)]


def _value_of(array: Any) -> Any:
    from onnxruntime import OrtValue

    code = _ELEMENT_TYPES.get(array.dtype.name)
    if code is None:
        return OrtValue.ortvalue_from_numpy(array)
    return OrtValue.ortvalue_from_numpy_with_onnx_type(array, code)


def _tensor_of(value: Any) -> Tensor:
    """A tensor of its own; numpy has no bfloat16, so that one is taken as it lies in memory."""
    import torch

    from torchstone.backends.arrays import tensor_of_array

    kind = value.data_type()
    if kind == "tensor(bfloat16)":
        return torch.utils.dlpack.from_dlpack(value).clone()
    if kind.startswith("tensor(float8"):
        msg = f"onnxruntime does not hand out values of {kind}"
        raise Unsupported(msg)
    return tensor_of_array(value.numpy())
