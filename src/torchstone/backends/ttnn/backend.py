"""The backend `ttnn`: calls of ttnn's own ops on a board, mock or real; modules of PyTorch are not for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchstone.backends.protocol import Args, Availability, Kwargs, Run, Unsupported, availability_of
from torchstone.backends.ttnn.boards import AUTO, L1_SMALL_BYTES, find_board

if TYPE_CHECKING:
    from torch import nn

_NEEDS = "torchstone ttnn setup"
_NOT_FOR_MODULES = "it judges calls of ttnn; `torchstone map` shows which ttnn calls a model's ops become"


class Ttnn:
    """ttnn calls on a mock device or a real one: accepted, refused or out of memory."""

    name = "ttnn"
    forks = True

    def __init__(self, *, device: str = AUTO, mesh: str = "", l1_small_bytes: int = L1_SMALL_BYTES) -> None:
        if device != AUTO:
            find_board(device, mesh)
        self.device, self.mesh, self.l1_small_bytes = device, mesh, l1_small_bytes

    def availability(self) -> Availability:
        """Needs ttnn alone."""
        return availability_of(["ttnn"], needs=_NEEDS)

    def warm_up(self) -> None:
        """Import ttnn."""
        import ttnn  # noqa: F401 - the import is the work

    def export(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, str]:  # noqa: ARG002 - the protocol
        """Refused: a module of PyTorch is no call of ttnn."""
        raise Unsupported(_NOT_FOR_MODULES)

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:  # noqa: ARG002 - the protocol
        """Refused: a module of PyTorch is no call of ttnn."""
        raise Unsupported(_NOT_FOR_MODULES)

    def reset(self) -> None:
        """Nothing to forget."""
