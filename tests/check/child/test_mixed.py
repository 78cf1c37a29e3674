from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from torchstone.backends.graphs import ReceivedGraph
from torchstone.check.child.graph_parts import Mixed, in_dtype_of


class Places(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.argsort(x, -1)
        return functional.one_hot(places, 6), places


def test_what_a_backend_gives_in_narrow_integers_is_widened_for_eager_and_left_alone_at_the_end() -> None:
    """one_hot takes int64 only; a backend without 64-bit integers hands int32 back."""
    graph = fx.symbolic_trace(Places())
    inputs = (torch.randn(2, 6),)
    by_eager = [node for node in graph.graph.nodes if getattr(node.target, "__name__", "") == "one_hot"]
    compiled = []

    def narrow(module: nn.Module, _args: tuple[Any, ...]) -> Any:
        compiled.append(module)
        return lambda *args: tuple(one.to(torch.int32) for one in module(*args))

    mixed = Mixed(ReceivedGraph(graph, inputs), by_eager, narrow)
    hot, places = mixed.run(*inputs)
    again, _ = mixed.run(*inputs)

    assert torch.equal(hot, functional.one_hot(torch.argsort(inputs[0], -1), 6))
    assert torch.equal(hot, again)
    assert places.dtype == torch.int32  # what the model returns is judged as it is
    assert len(compiled) == 1  # the second call runs what the first compiled


def test_another_kind_of_number_is_not_converted() -> None:
    whole, number = torch.ones(2, dtype=torch.int64), torch.ones(2)

    assert in_dtype_of(whole, number) is number
    assert in_dtype_of(whole, torch.ones(2, dtype=torch.bool)).dtype == torch.bool  # type: ignore[attr-defined]
    assert in_dtype_of(number, torch.ones(2, dtype=torch.float64)).dtype == torch.float32  # type: ignore[attr-defined]
