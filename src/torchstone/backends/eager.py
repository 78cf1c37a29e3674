"""Plain PyTorch on the CPU: the definition of right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchstone.backends.protocol import Args, Availability, Kwargs, Run, availability_of

if TYPE_CHECKING:
    from torch import nn


class Eager:
    """Runs the module as it is."""

    name = "eager"
    forks = True

    def availability(self) -> Availability:
        """Wherever torch is."""
        return availability_of(["torch"], needs="pip install 'torchstone[torch]'")

    def warm_up(self) -> None:
        """Import torch."""
        import torch  # noqa: F401 - the import is the work

    def export(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, str]:
        """The graph of ATen ops that torch.export sees."""
        from torchstone.backends.export import exported_program

        program = exported_program(module, args, kwargs).program
        text = program.graph_module.print_readable(print_output=False)
        return {"aten": text}

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:  # noqa: ARG002 - the protocol
        """Nothing to compile."""
        from torchstone.backends.protocol import without_gradients

        return without_gradients(module)

    def reset(self) -> None:
        """Nothing to forget."""
