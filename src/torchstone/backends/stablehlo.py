"""StableHLO by way of JAX: torchax turns the module into a JAX function, XLA compiles it for the CPU."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torchstone.backends.protocol import Args, Availability, Kwargs, Run, Unsupported, availability_of

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.export import ExportedProgram

    from torchstone.backends.export import Exported

JaxValue = Any  # JAX is not installed where this is type-checked
_OP = re.compile(r"\w+\.\w+\.\w+")


class StableHlo:
    """torchax and JAX: the StableHLO that XLA compilers read."""

    name = "stablehlo"
    forks = True  # JAX has threads from its first array on, which no parent of a fork makes

    def availability(self) -> Availability:
        """Needs torchax and jax."""
        return availability_of(["torch", "torchax", "jax", "numpy"], needs="pip install 'torchstone[stablehlo]'")

    def warm_up(self) -> None:
        """Import JAX and torchax."""
        import os

        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        with warnings.catch_warnings(), overloads_that_torch_dropped():
            warnings.simplefilter("ignore")
            import jax
            import torchax.export  # noqa: F401 - the import is the work

        from torchstone.backends.export import import_exporter

        jax.config.update("jax_enable_x64", True)  # noqa: FBT003 - jax's signature; int64 and float64 stay what they are
        import_exporter()

    def export(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, str]:
        """The StableHLO text."""
        return {"stablehlo": self._lowered(module, args, kwargs)[1].as_text()}

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:
        """Lower the module and let XLA compile it."""
        from torchstone.backends.failures import compiling

        exported, lowered, weights = self._lowered(module, args, kwargs)
        with compiling():
            compiled = lowered.compile()
        return exported.nested(lambda tensors: _run(compiled, weights, tensors))

    def reset(self) -> None:
        """Forget what JAX compiled."""
        import jax

        jax.clear_caches()

    def _lowered(self, module: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Exported, JaxValue, JaxValue]:
        from torchstone.backends.arrays import array_of
        from torchstone.backends.export import converting, exported_program

        self.warm_up()
        import jax

        exported = exported_program(module, args, kwargs)
        inputs = tuple(jax.numpy.asarray(array_of(tensor)) for tensor in exported.example)
        with converting(refusal):
            weights, function = _jax_function(exported.program)
            return exported, jax.jit(function).lower(weights, inputs), weights


def _jax_function(program: ExportedProgram) -> tuple[JaxValue, Callable[[JaxValue, JaxValue], JaxValue]]:
    """Weights as JAX arrays and the function that takes them before the inputs.

    torchax.export.exported_program_to_jax passes parameters, buffers and constants in this order, whatever order the
    graph has them in: a program with a constant before a buffer, such as a Llama with an empty cache, gets one in the
    place of the other. Here they are passed in the graph's own order; all else is torchax's.
    """
    import torchax
    from torchax.decompositions import DECOMPOSITIONS
    from torchax.export import JaxInterpreter

    program = program.run_decompositions().run_decompositions(DECOMPOSITIONS)
    signature = program.graph_signature
    values = {**program.state_dict, **program.constants}
    states = [values[spec.target] for spec in signature.input_specs if spec.target is not None]
    weights = torchax.default_env().t2j_copy(states)
    mutated = len(signature.buffers_to_mutate)

    def run(states: JaxValue, inputs: JaxValue) -> JaxValue:
        results = JaxInterpreter(program.graph_module).run(*states, *inputs, enable_io_processing=False)
        return results[mutated:]

    return weights, run


def _run(compiled: JaxValue, weights: JaxValue, tensors: Sequence[Tensor]) -> list[Tensor]:
    import jax
    import numpy

    from torchstone.backends.arrays import array_of, tensor_of_array

    inputs = tuple(jax.numpy.asarray(array_of(tensor)) for tensor in tensors)
    return [tensor_of_array(numpy.asarray(one)) for one in compiled(weights, inputs)]


def refusal(error: Exception) -> Unsupported | None:
    """An op that torchax's interpreter found no rule for; nothing when something else went wrong."""
    op_name = str(error).partition("\n")[0]  # "aten.histc.default", then where in the graph
    if not isinstance(error, AssertionError) or not _OP.fullmatch(op_name):
        return None
    return Unsupported(f"torchax has no rule for {op_name}", ops=(op_name,))


@contextmanager
def overloads_that_torch_dropped() -> Iterator[None]:
    """While open, overloads that this torch does not have any more exist by name.

    torchax lists the overloads with named dimensions in its tables; torch 2.13 has none of them.
    """
    from torch._ops import OpOverloadPacket

    original = OpOverloadPacket.__getattr__

    def look_up(packet: OpOverloadPacket, name: str) -> Any:
        try:
            return original(packet, name)
        except AttributeError:
            if "name" not in name.lower():
                raise
            return f"{packet}.{name}"  # only ever a key of a table

    OpOverloadPacket.__getattr__ = look_up  # type: ignore[method-assign]
    try:
        yield
    finally:
        OpOverloadPacket.__getattr__ = original  # type: ignore[method-assign]
