"""torch.compile's own compiler: C++ for the CPU."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from torchstone.backends.packages import availability_of
from torchstone.backends.protocol import Availability, Run

if TYPE_CHECKING:
    from torch import nn

_COMPILERS = ("g++", "clang++", "c++")


class Inductor:
    """Generates C++ and needs a compiler for it."""

    name = "inductor"
    forks = True

    def __init__(self, *, fullgraph: bool = False) -> None:
        self.fullgraph = fullgraph  # a graph break is a refusal

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

    def export(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
        """The ATen graphs, and the code that is generated for them."""
        from torch._inductor.utils import run_and_get_code

        from torchstone.backends.dynamo import aten_graphs, compiled

        graphs = aten_graphs(module, args, kwargs)
        self.reset()
        _, codes = run_and_get_code(compiled(module, backend="inductor"), *args, **kwargs)
        return {"aten": graphs, "code": "\n".join(codes)}

    def compile(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:  # noqa: ARG002 - the protocol
        """Compile when first called."""
        from torchstone.backends.dynamo import compiled

        return compiled(module, backend="inductor", fullgraph=self.fullgraph)

    def reset(self) -> None:
        """Forget what dynamo compiled."""
        import torch._dynamo

        torch._dynamo.reset()
