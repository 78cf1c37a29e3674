"""torch.compile without a code generator: the module is traced to ATen graphs, which eager then runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchstone.backends.packages import availability_of
from torchstone.backends.protocol import Availability, Run

if TYPE_CHECKING:
    from torch import nn


class AotEager:
    """Finds what cannot be traced or made functional, with nothing to install."""

    name = "aot_eager"
    forks = True

    def __init__(self, *, fullgraph: bool = False) -> None:
        self.fullgraph = fullgraph  # a graph break is a refusal

    def availability(self) -> Availability:
        """Wherever torch is."""
        return availability_of(["torch"], needs="pip install 'torchstone[torch]'")

    def warm_up(self) -> None:
        """Import what torch.compile needs."""
        import torch._dynamo  # noqa: F401 - the import is the work

    def export(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
        """The ATen graphs."""
        from torchstone.backends.dynamo import aten_graphs

        return {"aten": aten_graphs(module, args, kwargs)}

    def compile(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:  # noqa: ARG002 - the protocol
        """Compile when first called."""
        from torchstone.backends.dynamo import compiled

        return compiled(module, backend="aot_eager", fullgraph=self.fullgraph)

    def reset(self) -> None:
        """Forget what dynamo compiled."""
        import torch._dynamo

        torch._dynamo.reset()
