"""The graph that a backend receives, for each way in which one gets it."""

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from torchstone.backends.eager import Eager
from torchstone.backends.export import exported_program
from torchstone.backends.graphs import hand_over
from torchstone.backends.lookup import open_backend
from torchstone.backends.protocol import Backend, Run


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"y": self.inner(x).softmax(-1) * self.scale}


class ByCompile(Eager):
    def compile(self, module: nn.Module, args: Any, kwargs: Any) -> Run:  # noqa: ARG002 - the protocol
        return torch.compile(module, backend="never called")


class ByExport(Eager):
    def compile(self, module: nn.Module, args: Any, kwargs: Any) -> Run:
        return exported_program(module, args, kwargs).nested(lambda _: [])


class Refuses(Eager):
    def compile(self, module: nn.Module, args: Any, kwargs: Any) -> Run:  # noqa: ARG002 - the protocol
        msg = "no device"
        raise RuntimeError(msg)


@pytest.mark.parametrize(
    ("backend", "kind"),
    [(open_backend("aot_eager"), "dynamo"), (ByCompile(), "dynamo"), (ByExport(), "export")],
)
def test_the_graph_has_the_weights_and_gives_what_the_module_gives(backend: Backend, kind: str) -> None:
    module, x = Scaled().eval(), torch.randn(2, 3)

    found = hand_over(backend, module, (x,), {})

    assert found is not None
    assert found.kind == kind
    (graph,) = found.graphs
    assert len(graph.inputs) == 1
    with torch.no_grad():
        (given,) = fx.Interpreter(graph.module).run(*graph.inputs)
        assert torch.equal(given, module(x)["y"])


@pytest.mark.parametrize("backend", [Eager(), open_backend("faulty"), Refuses()])
def test_a_backend_that_runs_the_code_has_no_graph(backend: Backend) -> None:
    assert hand_over(backend, Scaled(), (torch.randn(2, 3),), {}) is None


def test_observing_leaves_torch_as_it_was() -> None:
    before = torch.compile, torch.export.export

    hand_over(ByCompile(), Scaled(), (torch.randn(2, 3),), {})

    assert (torch.compile, torch.export.export) == before
