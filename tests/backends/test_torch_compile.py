from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.backends.nets import two_layers
from torchstone.backends.protocol import CompileFailed, Unsupported
from torchstone.backends.torch_compile import aten_graphs, classify_error, compiled


class BreaksTheGraph(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return x + 1


def broken_compiler(_graph: Any, _example: Any) -> Any:
    msg = "the compiler broke"
    raise ZeroDivisionError(msg)


def refusing_compiler(_graph: Any, _example: Any) -> Any:
    from torch._inductor.exc import MissingOperatorWithoutDecomp

    raise MissingOperatorWithoutDecomp(torch.ops.aten.mm.default, [], {})


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


def test_a_compiler_that_breaks_is_a_failure_to_compile() -> None:
    module, x = two_layers()

    with pytest.raises(CompileFailed, match="ZeroDivisionError: the compiler broke"):
        compiled(module, backend=broken_compiler)(x)


def test_an_op_without_a_lowering_is_a_refusal_that_names_it() -> None:
    module, x = two_layers()

    with pytest.raises(Unsupported) as refused:
        compiled(module, backend=refusing_compiler)(x)

    assert refused.value.ops == ("aten.mm.default",)


def test_a_graph_break_is_a_refusal_only_when_one_graph_was_asked_for() -> None:
    x = torch.ones(2)

    assert compiled(BreaksTheGraph(), backend="eager")(x).tolist() == [2.0, 2.0]
    torch._dynamo.reset()
    with pytest.raises(Unsupported):
        compiled(BreaksTheGraph(), backend="eager", fullgraph=True)(x)


def test_an_error_of_the_run_stays_what_it_is() -> None:
    assert classify_error(ValueError("bad value")) is None


def test_the_graphs_are_those_that_a_backend_is_given() -> None:
    module, x = two_layers()

    text = aten_graphs(module, (x,), {})

    assert text.startswith("# graph 0\n")
    assert text.count("torch.ops.aten.addmm.default") == 2
