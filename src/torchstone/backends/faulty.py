"""Eager with planted faults: what a bad day with a new accelerator looks like, on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchstone.backends.eager import Eager
from torchstone.backends.protocol import Args, Kwargs, Run

if TYPE_CHECKING:
    from torch import nn

    from torchstone.backends.faults import Plant


class Faulty(Eager):
    """Runs the module as it is, but for the planted faults.

    The options are the fields of `faults.Plant` for one fault, or `faults`: a list of such sets of options.
    """

    name = "faulty"

    def __init__(self, *, faults: Sequence[Mapping[str, object]] = (), **single: Any) -> None:
        if single and "fault" not in single:
            msg = f"name a fault beside {', '.join(single)}"
            raise ValueError(msg)
        self.faults = [*faults, single] if single else [*faults]
        if self.faults:
            self._plants()  # reject a misspelt fault at once; without any fault, torch is not needed yet

    def _plants(self) -> list[Plant]:
        from torchstone.backends.faults import Plant

        return [Plant(**fault) for fault in self.faults]

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:  # noqa: ARG002 - the protocol
        """Nothing to compile; faults happen in each run anew."""
        import torch

        from torchstone.backends.faults import planted

        plants = self._plants()

        def run(*args: object, **kwargs: object) -> object:
            with torch.no_grad(), planted(module, plants):
                return module(*args, **kwargs)

        return run
