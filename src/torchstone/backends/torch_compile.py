"""Backends of torch.compile: aot_eager and inductor, and how a refusal of dynamo is classified."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torchstone.backends.failures import Refusal, running, with_causes
from torchstone.backends.protocol import (
    Args,
    Availability,
    CompileFailed,
    Kwargs,
    Run,
    Unsupported,
    availability_of,
    first_line,
)

if TYPE_CHECKING:
    from torch import Tensor, fx, nn

# --- Shared: running, classifying refusals, and the ATen graphs that backends are given ---


_REFUSALS = ("MissingOperatorWithDecomp", "MissingOperatorWithoutDecomp", "Unsupported", "UnsupportedOperatorException")
_KEEPS_GRADIENTS: ContextVar[bool] = ContextVar(
    "keeps_gradients", default=False
)  # only in a check of the backward pass
_COMPILING = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx")


def compiled(module: nn.Module, *, backend: Any, **options: Any) -> Run:
    """A module through torch.compile; it compiles when it is first called."""
    import torch

    run = torch.compile(module, backend=backend, dynamic=False, **options)

    def call(*args: object, **kwargs: object) -> object:
        with torch.set_grad_enabled(_KEEPS_GRADIENTS.get()), running(classify_error):
            return run(*args, **kwargs)

    return call


@contextmanager
def keeping_gradients() -> Iterator[None]:
    """Runs inside keep what gradients need."""
    token = _KEEPS_GRADIENTS.set(True)
    try:
        yield
    finally:
        _KEEPS_GRADIENTS.reset(token)


def classify_error(error: Exception) -> Refusal | None:
    """A refusal, a broken compilation, or nothing when the module's own run raised it."""
    from torchstone.backends.op_info import ops_named_in

    causes = with_causes(error)
    text = "\n".join(map(str, causes))
    if any(type(cause).__name__ in _REFUSALS for cause in causes):
        return Unsupported(first_line(causes[-1]), ops=ops_named_in(text))
    if any(type(cause).__module__.startswith(_COMPILING) for cause in causes):
        return CompileFailed(first_line(causes[-1]))
    return None


def aten_graphs(module: nn.Module, args: Args, kwargs: Kwargs) -> str:
    """The ATen graphs that torch.compile hands to a backend for one call, in order."""
    import torch._dynamo
    from torch._dynamo.backends.common import aot_autograd

    texts: list[str] = []

    def keep(graph: fx.GraphModule, _example: Sequence[Tensor]) -> Callable[..., Any]:
        texts.append(graph.print_readable(print_output=False))
        return graph.forward

    torch._dynamo.reset()
    compiled(module, backend=aot_autograd(fw_compiler=keep))(*args, **kwargs)
    return "\n".join(f"# graph {number}\n{text.strip()}\n" for number, text in enumerate(texts))


# --- aot_eager: traced to ATen graphs, which eager then runs ---


class AotEager:
    """Finds what cannot be traced or made functional, with nothing to install."""

    name = "aot_eager"
    forks = True
    gradients = True

    def __init__(self, *, fullgraph: bool = False) -> None:
        self.fullgraph = fullgraph  # a graph break is a refusal

    def availability(self) -> Availability:
        """Wherever torch is."""
        return availability_of(["torch"], needs="pip install 'torchstone[torch]'")

    def warm_up(self) -> None:
        """Import what torch.compile needs."""
        import torch._dynamo  # noqa: F401 - the import is the work

    def export(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, str]:
        """The ATen graphs."""
        return {"aten": aten_graphs(module, args, kwargs)}

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:  # noqa: ARG002 - the protocol
        """Compile when first called."""
        return compiled(module, backend="aot_eager", fullgraph=self.fullgraph)

    def reset(self) -> None:
        """Forget what dynamo compiled."""
        import torch._dynamo

        torch._dynamo.reset()


# --- inductor: C++ for the CPU ---


_COMPILERS = ("g++", "clang++", "c++")


class Inductor:
    """Generates C++ and needs a compiler for it."""

    name = "inductor"
    forks = True
    gradients = True
    variants = MappingProxyType(  # settings under which a script is run for a bug report: variables of the environment
        {
            "scalar instead of vector code": {"ATEN_CPU_CAPABILITY": "default"},
            "C++ around the kernels": {"TORCHINDUCTOR_CPP_WRAPPER": "1"},
            "weights as constants": {"TORCHINDUCTOR_FREEZING": "1"},
        }
    )

    def __init__(self, *, fullgraph: bool = False, config: Mapping[str, object] | None = None) -> None:
        self.fullgraph = fullgraph  # a graph break is a refusal
        self.config = dict(config or {})  # of torch._inductor.config: {"epilogue_fusion": false}

    def availability(self) -> Availability:
        """Wherever torch and a C++ compiler are."""
        found = availability_of(["torch"], needs="pip install 'torchstone[torch]'")
        if found.usable and not any(map(shutil.which, (os.environ.get("CXX", ""), *_COMPILERS))):
            return Availability(
                usable=False, reason="no C++ compiler", version=found.version, needs="g++ or clang++, or set CXX"
            )
        return found

    def warm_up(self) -> None:
        """Import the compiler; it compiles in this process, as its pool of others would not survive a fork.

        Its cache of compiled graphs is off: the code behind a custom op is not part of that cache's key, so an op that
        was mended would go on being wrong.
        """
        import torch._dynamo
        import torch._functorch.config
        import torch._inductor.compile_fx
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1
        torch._inductor.config.fx_graph_cache = False
        torch._functorch.config.enable_autograd_cache = False

    def export(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, str]:
        """The ATen graphs, and the code that is generated for them."""
        from torch._inductor.utils import run_and_get_code

        graphs = aten_graphs(module, args, kwargs)
        self.reset()
        _, codes = run_and_get_code(compiled(module, backend="inductor", options=self._options), *args, **kwargs)
        return {"aten": graphs, "code": "\n".join(codes)}

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:  # noqa: ARG002 - the protocol
        """Compile when first called."""
        return compiled(module, backend="inductor", fullgraph=self.fullgraph, options=self._options)

    @property
    def _options(self) -> dict[str, object] | None:
        return self.config or None

    def reset(self) -> None:
        """Forget what dynamo compiled."""
        import torch._dynamo

        torch._dynamo.reset()
