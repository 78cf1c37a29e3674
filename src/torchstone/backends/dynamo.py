"""What all backends of torch.compile share: running, classifying refusals, and the ATen graphs they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from torchstone.backends.failures import Meaning, running, with_causes
from torchstone.backends.op_names import ops_named_in
from torchstone.backends.protocol import CompileFailed, Run, Unsupported
from torchstone.backends.running import first_line

_REFUSALS = ("MissingOperatorWithDecomp", "MissingOperatorWithoutDecomp", "Unsupported", "UnsupportedOperatorException")
_COMPILING = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx")


def compiled(module: nn.Module, *, backend: Any, **options: Any) -> Run:
    """A module through torch.compile; it compiles when it is first called."""
    run = torch.compile(module, backend=backend, dynamic=False, **options)

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad(), running(meaning_of):
            return run(*args, **kwargs)

    return call


def meaning_of(error: Exception) -> Meaning | None:
    """A refusal, a broken compilation, or nothing when the module's own run raised it."""
    causes = with_causes(error)
    text = "\n".join(map(str, causes))
    if any(type(cause).__name__ in _REFUSALS for cause in causes):
        return Unsupported(first_line(causes[-1]), ops=ops_named_in(text))
    if any(type(cause).__module__.startswith(_COMPILING) for cause in causes):
        return CompileFailed(first_line(causes[-1]))
    return None


def aten_graphs(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The ATen graphs that torch.compile hands to a backend for one call, in order."""
    from torch._dynamo.backends.common import aot_autograd

    texts: list[str] = []

    def keep(graph: fx.GraphModule, _example: Sequence[Tensor]) -> Callable[..., Any]:
        texts.append(graph.print_readable(print_output=False))
        return graph.forward

    torch._dynamo.reset()
    compiled(module, backend=aot_autograd(fw_compiler=keep))(*args, **kwargs)
    return "\n".join(f"# graph {number}\n{text.strip()}\n" for number, text in enumerate(texts))
