import shutil
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.backends.nets import nested, two_layers
from torchstone.backends.protocol import CompileFailed, Unsupported
from torchstone.backends.torch_compile import AotEager, Inductor, aten_graphs, classify_error, compiled
from torchstone.numerics.verdict import judge


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


def test_traced_modules_compute_the_same() -> None:
    module, args, kwargs = nested()
    backend = AotEager()
    backend.warm_up()

    verdict = judge(module(*args, **kwargs), backend.compile(module, args, kwargs)(*args, **kwargs))

    assert verdict["passed"], verdict["reason"]
    backend.reset()


def test_the_export_is_the_aten_graph() -> None:
    module, x = two_layers()

    assert "aten.gelu" in AotEager().export(module, (x,), {})["aten"]


def test_it_is_usable_wherever_torch_is() -> None:
    assert AotEager(fullgraph=True).availability().version == f"torch {torch.__version__}"


class RunningMax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.ops.torchstone_test.running_max(x)
        return found + x


needs_compiler = pytest.mark.skipif(
    not Inductor().availability().usable, reason="inductor generates C++ and there is no compiler for it"
)


@needs_compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_generated_code_computes_the_same_and_can_be_read() -> None:
    module, x = two_layers()
    backend = Inductor()
    backend.warm_up()

    stages = backend.export(module, (x,), {})
    verdict = judge(module(x), backend.compile(module, (x,), {})(x))

    assert list(stages) == ["aten", "code"]
    assert "aten.addmm.default" in stages["aten"]
    assert "cpp_fused" in stages["code"]
    assert verdict["passed"], verdict["reason"]
    backend.reset()


@needs_compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_mended_op_is_compiled_anew() -> None:
    x = torch.linspace(-1, 1, 8)
    told: list[torch.dtype] = [torch.float32]

    @torch.library.custom_op("torchstone_test::running_max", mutates_args=())
    def running_max(values: Tensor) -> Tensor:
        return torch.cummax(values, dim=-1).values.to(torch.float64)

    running_max.register_fake(lambda values: torch.empty_like(values, dtype=told[0]))
    net = RunningMax()
    backend = Inductor()
    backend.warm_up()
    wrong = judge(net(x), backend.compile(net, (x,), {})(x))
    backend.reset()

    told[0] = torch.float64
    right = judge(net(x), backend.compile(net, (x,), {})(x))

    assert (wrong["passed"], right["passed"]) == (False, True)
    backend.reset()


def test_without_a_compiler_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)

    found = Inductor().availability()

    assert not found.usable
    assert found.reason == "no C++ compiler"
    assert "CXX" in found.needs
