"""ONNX: torch.onnx exports the module, ONNX Runtime runs it on the CPU."""

from __future__ import annotations

import logging
import re
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchstone.backends.packages import availability_of
from torchstone.backends.protocol import Availability, CompileFailed, Run, Unsupported

if TYPE_CHECKING:
    from torch import Tensor, nn

    from torchstone.backends.exporting import Exported

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
        from torchstone.backends.exporting import import_exporter

        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells which packages are not installed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import onnxruntime
            import onnxscript  # noqa: F401 - the import is the work
            import torch.onnx._internal.exporter._core  # noqa: F401 - the same
        onnxruntime.set_default_logger_severity(3)  # errors only
        import_exporter()

    def export(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
        """The ONNX model as text, without the values of large weights."""
        _, program = self._exported(module, args, kwargs)
        return {"onnx": str(program.model)}

    def compile(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
        """Export the module and load it into the runtime."""
        exported, program = self._exported(module, args, kwargs)
        session = _session(program)
        return exported.nested(lambda tensors: _run(session, tensors))

    def reset(self) -> None:
        """Nothing is kept."""

    def _exported(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Exported, Any]:
        import torch

        from torchstone.backends.dynamo import ops_named_in
        from torchstone.backends.exporting import exported_program
        from torchstone.backends.running import first_line, last_cause

        self.warm_up()
        exported = exported_program(module, args, kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return exported, torch.onnx.export(exported.program, dynamo=True, verbose=False)
            except torch.onnx.OnnxExporterError as error:
                cause = last_cause(error)
                if type(cause).__name__ == "DispatchError" or isinstance(cause, NotImplementedError):
                    raise Unsupported(first_line(cause), ops=ops_named_in(f"{cause}\n{error}")[:1]) from error
                raise CompileFailed(first_line(cause)) from error


def _session(program: Any) -> Any:
    from onnxruntime import InferenceSession, SessionOptions
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    from torchstone.backends.running import first_line

    options = SessionOptions()
    options.intra_op_num_threads = 1
    weights_bytes = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            program.save(str(path), external_data=weights_bytes > _LARGEST_IN_MEMORY_BYTES)
            return InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except errors.NotImplemented as error:
        found = _MISSING_KERNEL.search(str(error))
        raise Unsupported(first_line(error), ops=(f"onnx.{found['op']}",) if found else ()) from error
    except (errors.Fail, errors.InvalidGraph, errors.InvalidArgument, errors.RuntimeException) as error:
        raise CompileFailed(first_line(error)) from error


def _run(session: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
    from onnxruntime import OrtValue

    from torchstone.backends.arrays import array_of, tensor_of_array

    feeds = {
        wanted.name: OrtValue.ortvalue_from_numpy(array_of(tensor))
        for wanted, tensor in zip(session.get_inputs(), tensors, strict=True)
    }
    return [tensor_of_array(value.numpy()) for value in session.run_with_ort_values(None, feeds)]
