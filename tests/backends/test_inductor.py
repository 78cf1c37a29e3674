import shutil

import pytest
import torch
from torch import Tensor, nn

from tests.backends.nets import two_layers
from torchstone.backends.torch_compile import Inductor
from torchstone.numerics.verdict import judge


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
