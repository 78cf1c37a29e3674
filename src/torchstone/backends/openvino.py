"""OpenVINO on the CPU, from a torch.export program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchstone.backends.protocol import Args, Availability, CompileFailed, Kwargs, Run, Unsupported, availability_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from torchstone.backends.export import Exported
    from torchstone.backends.failures import Refusal

_DTYPES = {  # OpenVINO's names of element types -> torch's
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "boolean": "bool",
}
_NO_RULE = re.compile(r"No conversion rule found for operations: (?P<ops>.+)")


class OpenVino:
    """OpenVINO's own reader of torch.export programs and its CPU plugin."""

    name = "openvino"
    forks = True

    def __init__(self, *, precision: str = "f32") -> None:
        self.precision = precision  # f32, bf16 or f16: what it computes float32 models in; its own default is the CPU's

    def availability(self) -> Availability:
        """Needs openvino."""
        return availability_of(["torch", "openvino", "numpy"], needs="pip install 'torchstone[openvino]'")

    def warm_up(self) -> None:
        """Import it; the device, which has threads, is opened later."""
        import openvino  # noqa: F401 - the import is the work

        from torchstone.backends.export import import_exporter

        import_exporter()

    def export(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, str]:
        """The model as OpenVINO's XML; weights are not in it."""
        import openvino

        from torchstone.temporary import temporary_folder

        _, model, _ = self._converted(module, args, kwargs)
        with temporary_folder("openvino") as folder:
            openvino.save_model(model, folder / "model.xml", compress_to_fp16=False)
            return {"xml": (folder / "model.xml").read_text(encoding="utf-8")}

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:
        """Convert the module and compile it for the CPU."""
        import openvino

        from torchstone.backends.failures import compiling

        exported, model, places = self._converted(module, args, kwargs)
        settings = {"INFERENCE_PRECISION_HINT": self.precision, "INFERENCE_NUM_THREADS": "1"}
        with compiling(classify_error):
            compiled = openvino.compile_model(model, "CPU", settings)
        return exported.nested(lambda tensors: _run(compiled, [tensors[place] for place in places]))

    def reset(self) -> None:
        """Nothing is kept."""

    def _converted(self, module: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Exported, object, list[int]]:
        """The exported program, OpenVINO's model, and which inputs of the program that has: it drops unread ones."""
        import openvino

        from torchstone.backends.export import converting, exported_program

        exported = exported_program(module, args, kwargs)
        with converting(classify_error):
            model = openvino.convert_model(exported.program)
            names = list(exported.program.graph_signature.user_inputs)
            places = [names.index(one.get_any_name()) for one in model.inputs]
        sizes = [openvino.PartialShape(list(exported.example[place].shape)) for place in places]
        model.reshape(dict(enumerate(sizes)))  # it starts with unknown ones
        return exported, model, places


def _run(compiled: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
    request = compiled.create_infer_request()
    request.infer([_given(tensor) for tensor in tensors])
    return [_taken(request.get_output_tensor(number)) for number in range(len(compiled.outputs))]


def _given(tensor: Tensor) -> object:
    """A tensor of OpenVINO's with the same bytes."""
    import openvino
    import torch

    names = {getattr(torch, dtype): name for name, dtype in _DTYPES.items()}
    if tensor.dtype not in names:
        msg = f"OpenVINO has no element type for {tensor.dtype}"
        raise Unsupported(msg)
    given = openvino.Tensor(getattr(openvino.Type, names[tensor.dtype]), openvino.Shape(list(tensor.shape)))
    if tensor.numel():
        content = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        given.data.reshape(-1).view("uint8")[:] = content.numpy()
    return given


def _taken(given: Any) -> Tensor:
    """A tensor of our own with the bytes of OpenVINO's."""
    import torch

    dtype = getattr(torch, _DTYPES[given.element_type.get_type_name()])
    if not given.size:
        return torch.empty(tuple(given.shape), dtype=dtype)
    content = torch.from_numpy(given.data.reshape(-1).view("uint8").copy())
    return content.view(dtype).reshape(tuple(given.shape))


def classify_error(error: Exception) -> Refusal:
    """An op without a rule, or a failure to compile."""
    found = _NO_RULE.search(str(error))
    if found:
        return Unsupported(f"no conversion rule for {found['ops']}", ops=tuple(found["ops"].split(", ")))
    return CompileFailed(telling_line(error))


def telling_line(error: Exception) -> str:
    """What went wrong; OpenVINO's messages begin with where in its sources it was noticed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Exception from", "Check '", "While validating"))]
    return (telling or lines or [type(error).__name__])[-1]
