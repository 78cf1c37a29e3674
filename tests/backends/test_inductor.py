import shutil

import pytest

from tests.backends.nets import two_layers
from torchstone.backends.inductor import Inductor
from torchstone.backends.verdict import judge

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


def test_without_a_compiler_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)

    found = Inductor().availability()

    assert not found.usable
    assert found.reason == "no C++ compiler"
    assert "CXX" in found.needs
