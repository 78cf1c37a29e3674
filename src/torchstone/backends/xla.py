"""torch_xla: lazy tensors or the `openxla` backend of torch.compile, on any PJRT device."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchstone.backends.protocol import Args, Availability, CompileFailed, Kwargs, Run, Unsupported, availability_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from torchstone.backends.failures import Refusal

LAZY = "lazy"
_WAY_OUT = "an environment of its own with `pip install torch==2.9.0 torch_xla==2.9.0`, given by --python"
_READS_A_NUMBER = "aten::_local_scalar_dense"  # not a missing rule: the program itself asks for a value
_REFUSED = re.compile(r"UNIMPLEMENTED: (?P<text>[^\n]+)")
_BROKEN = re.compile(r"(?:INTERNAL|INVALID_ARGUMENT|FAILED_PRECONDITION): (?P<text>[^\n]+)|[Ff]ailed to compile")


class Xla:
    """torch_xla on a PJRT device; the path that Tenstorrent and TPU hardware use."""

    name = "xla"
    forks = True  # the device, which has threads, is opened after the fork

    def __init__(
        self,
        *,
        device: str = "CPU",
        path: str = LAZY,
        compile_options: Mapping[str, object] | None = None,
        allow_fallback: bool = False,
    ) -> None:
        self.device = device  # the PJRT device type: CPU, TPU, TT
        self.path = path  # lazy, or the name of a backend of torch.compile: openxla
        self.compile_options = dict(compile_options or {})  # for the compiler of the PJRT plugin
        self.allow_fallback = allow_fallback  # True: an op that XLA cannot do may run on the host

    def availability(self) -> Availability:
        """Needs torch_xla, which is built against one torch: mostly an environment of its own."""
        return availability_of(["torch", "torch_xla"], needs=_WAY_OUT)

    def warm_up(self) -> None:
        """Import torch_xla and choose the device type; nothing is opened yet."""
        os.environ["PJRT_DEVICE"] = self.device
        import torch_xla.core.xla_model
        import torch_xla.debug.metrics
        import torch_xla.runtime  # noqa: F401 - the imports are the work

    def export(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, str]:
        """The lazy graph of a run as StableHLO and as HLO."""
        import torch
        import torch_xla
        import torch_xla.core.xla_model as xm

        from torchstone.backends.op_info import ops_called
        from torchstone.numerics.pytree import flatten

        device = self.open_device()
        moved = moved_to(module, device)
        moved_args, moved_kwargs = on_device((args, kwargs), device)
        before = host_ops()
        with torch.no_grad():
            tensors = [tensor for tensor in flatten(moved(*moved_args, **moved_kwargs))[0] if tensor.device == device]
        if not self.allow_fallback:  # the graph would begin behind them
            refuse_host_ops(before, host_ops(), lambda: ops_called(module, args, kwargs))
        if not tensors:
            msg = "the module gives no tensor of the device: there is no graph to export"
            raise Unsupported(msg)
        return {"stablehlo": xm.get_stablehlo(tensors), "hlo": torch_xla._XLAC._get_xla_tensors_hlo(tensors)}

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:  # noqa: ARG002 - the protocol
        """A function that moves a copy of the module and its inputs to the device; it compiles when first called."""
        import torch

        from torchstone.backends.failures import running
        from torchstone.backends.op_info import ops_called

        device = self.open_device()
        moved = moved_to(module, device)
        run = moved if self.path == LAZY else torch.compile(moved, backend=self.path, **self.torch_compile_options())

        def call(*args: object, **kwargs: object) -> object:
            moved_args, moved_kwargs = on_device((args, kwargs), device)
            before = host_ops()
            with torch.no_grad(), running(classify_error):
                outputs = on_device(run(*moved_args, **moved_kwargs), torch.device("cpu"))
            if not self.allow_fallback:
                refuse_host_ops(before, host_ops(), lambda: ops_called(module, args, kwargs))
            return outputs

        return call

    def reset(self) -> None:
        """Forget what was compiled, as far as this torch_xla can."""
        import torch._dynamo
        import torch_xla.runtime as xr

        torch._dynamo.reset()
        clear = getattr(xr, "clear_computation_cache", None)  # not in every build
        if clear is not None:
            clear()

    def torch_compile_options(self) -> dict[str, Any]:
        """More arguments for torch.compile."""
        return {}

    def open_device(self) -> torch.device:
        """The device, with the options of its compiler set."""
        self.warm_up()
        import torch_xla

        device: torch.device = torch_xla.device()
        if self.compile_options:
            self.set_compile_options(self.compile_options)
        return device

    def set_compile_options(self, options: Mapping[str, object]) -> None:
        """Hand options to the compiler of the PJRT plugin; they are strings there."""
        import torch_xla

        hand_over = getattr(torch_xla, "set_custom_compile_options", None)
        if hand_over is None:
            msg = f"torch_xla {torch_xla.__version__} takes no compile options; the builds of accelerator vendors do"
            raise Unsupported(msg)
        hand_over({name: option_text(value) for name, value in options.items()})


def option_text(value: object) -> str:
    """A compile option as plugins read it: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def moved_to(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy of a module on a device; a recorded program makes its new tensors there, too."""
    import torch
    from torch import fx

    moved = copy.deepcopy(module).to(device)
    if isinstance(moved, fx.GraphModule):
        for node in moved.graph.nodes:
            takes = getattr(getattr(node.target, "_schema", None), "arguments", ())
            if any(argument.name == "device" for argument in takes):
                node.args = tuple(device if isinstance(given, torch.device) else given for given in node.args)
                by_position = any(given is device for given in node.args)
                node.kwargs = node.kwargs if by_position else {**node.kwargs, "device": device}
        moved.recompile()
    return moved


def on_device(value: object, device: torch.device) -> Any:
    """A nested value with its tensors on a device."""
    from torchstone.numerics.pytree import flatten, unflatten

    tensors, structure = flatten(value)
    return unflatten(structure, [tensor.to(device) for tensor in tensors])


def host_ops() -> dict[str, int]:
    """How often each op ran on the host because XLA has no rule for it, since the process began."""
    from torch_xla.debug import metrics

    names = [name for name in metrics.counter_names() if name.startswith("aten::") and name != _READS_A_NUMBER]
    return {name: metrics.counter_value(name) or 0 for name in names}


def refuse_host_ops(
    before: Mapping[str, int], after: Mapping[str, int], known: Callable[[], Iterable[str]] = tuple
) -> None:
    """Raise when ops ran on the host in between: the device did not do them.

    torch_xla counts them without their overloads; `known` are the ops that the module calls, which have them.
    """
    from torchstone.backends.op_info import with_overloads

    named = [name.replace("::", ".") for name, count in after.items() if count > before.get(name, 0)]
    if named:
        ops = with_overloads(named, known())
        msg = f"torch_xla has no rule for {', '.join(ops)} and ran it on the host"
        raise Unsupported(msg, ops=ops)


def classify_error(error: Exception) -> Refusal | None:
    """A refusal, a broken compilation, or nothing when the module's own run raised it."""
    from torchstone.backends.op_info import ops_named_in
    from torchstone.backends.torch_compile import classify_error as classify_dynamo_error

    text = str(error)
    refused, broken = _REFUSED.search(text), _BROKEN.search(text)
    if refused:
        return Unsupported(refused["text"], ops=ops_named_in(text))
    if broken:
        return CompileFailed(broken["text"] or broken.group())
    return classify_dynamo_error(error)
