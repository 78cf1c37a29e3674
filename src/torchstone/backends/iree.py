"""IREE: iree-turbine writes the module as MLIR, the IREE compiler and runtime bring it to the CPU."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchstone.backends.protocol import Args, Availability, CompileFailed, Kwargs, Run, Unsupported, availability_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from torchstone.backends.export import Exported
    from torchstone.backends.failures import Refusal

_PACKAGES = ["torch", "iree-turbine", "iree-base-compiler", "iree-base-runtime"]
_LARGEST_LITERAL = 16  # elements of a weight that are shown in the text
_FLAGS = ["--iree-input-type=torch", "--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"]
_TORCH_OP = re.compile(r"^torch\.(?=(?:aten|prims?)\.)")  # the dialect's own ops keep its name
_ERROR = re.compile(r"error: (?P<text>.*)")
_ILLEGAL = re.compile(r"failed to legalize operation '(?P<op>[\w.]+)'(?:.*<\{name = \"(?P<name>[\w.]+)\"\}>)?")


class Iree:
    """IREE's torch-mlir importer, its compiler for llvm-cpu, and its local runtime."""

    name = "iree"
    forks = True

    def availability(self) -> Availability:
        """Needs iree-turbine and IREE's compiler and runtime."""
        return availability_of(_PACKAGES, needs="pip install 'torchstone[iree]'")

    def warm_up(self) -> None:
        """Import importer, compiler and runtime."""
        from torchstone.backends.export import import_exporter

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import iree.compiler.tools
            import iree.runtime
            import iree.turbine.aot  # noqa: F401 - the imports are the work
        import_exporter()

    def export(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, str]:
        """The MLIR that the compiler is given, in the torch dialect, without the values of weights."""
        _, written, _ = self._written(module, args, kwargs)
        return {
            "torch-mlir": written.get_asm(large_elements_limit=_LARGEST_LITERAL, large_resource_limit=_LARGEST_LITERAL)
        }

    def mlir_text(self, module: nn.Module, args: Args, kwargs: Kwargs) -> str:
        """The MLIR with all values, as the compiler reads it from a file."""
        text: str = self._written(module, args, kwargs)[1].get_asm()
        return text

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:
        """Compile for this CPU and load the result."""
        import iree.runtime
        from iree.compiler.tools import CompilerToolError, compile_str

        from torchstone.backends.failures import compiling

        exported, written, ops = self._written(module, args, kwargs)
        content = io.BytesIO()
        written.write_bytecode(content)
        with compiling(lambda error: refusal(str(error), ops) if isinstance(error, CompilerToolError) else None):
            binary = compile_str(content.getvalue(), target_backends=["llvm-cpu"], extra_args=_FLAGS)
        config = iree.runtime.Config("local-sync")
        loaded = iree.runtime.load_vm_module(iree.runtime.VmModule.copy_buffer(config.vm_instance, binary), config)
        return exported.nested(lambda tensors: _run(loaded["main"], tensors))

    def reset(self) -> None:
        """Nothing is kept."""

    def _written(self, module: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Exported, Any, tuple[str, ...]]:
        """The exported program, the MLIR made of it, and the ops that it was made of."""
        from iree.turbine import aot
        from iree.turbine.aot.decompositions import current_aot_decompositions

        from torchstone.backends.export import converting, exported_program

        exported = exported_program(module, args, kwargs)
        with converting():
            program = exported.program.run_decompositions(current_aot_decompositions())
            ops = tuple(str(node.target) for node in program.graph.nodes if node.op == "call_function")
            return exported, aot.export(program).mlir_module, ops


def refusal(diagnostics: str, known: Sequence[str] = ()) -> Refusal:
    """What the compiler's output means: an op that it has no lowering for, or a failure.

    Its dialect leaves out the overload `default`; `known` are the program's own ops, which have it.
    """
    from torchstone.backends.op_info import with_overloads

    found = _ILLEGAL.search(diagnostics)
    if found:
        ops = with_overloads([_TORCH_OP.sub("", found["name"] or found["op"])], known)
        return Unsupported(f"no lowering for {', '.join(ops)}", ops=ops)
    error = _ERROR.search(diagnostics)
    lines = [line for line in diagnostics.splitlines() if line.strip()]
    return CompileFailed(error["text"] if error else " ".join(lines[:3]) or "the compiler said nothing")


def _run(function: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
    from torchstone.backends.arrays import array_of, tensor_of_array

    given = function(*map(array_of, tensors))
    return [tensor_of_array(one.to_host()) for one in (given if isinstance(given, (tuple, list)) else [given])]
