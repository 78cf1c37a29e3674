"""Backends that fail for what a script must make again just as it was: wanted gradients, and how memory is laid out."""

from typing import Any

from torch import nn

from torchstone.backends.eager import Eager
from torchstone.backends.protocol import CompileFailed, Run


class WantsNoGradients(Eager):
    """Cannot compile what holds a weight that wants gradients."""

    name = "wants_no_gradients"

    def compile(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
        if any(tensor.requires_grad for tensor in (*module.parameters(), *module.buffers())):
            msg = "a weight wants gradients"
            raise CompileFailed(msg)
        return super().compile(module, args, kwargs)


class WantsRowsOfSmallValues(Eager):
    """Cannot run what is given columns with a value above a hundred."""

    name = "wants_rows_of_small_values"

    def compile(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
        run = super().compile(module, args, kwargs)

        def picky(*args: Any) -> Any:
            if any(not tensor.is_contiguous() and tensor.max() > 100 for tensor in args):
                msg = "columns with large values"
                raise RuntimeError(msg)
            return run(*args)

        return picky
