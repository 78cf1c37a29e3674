import pytest
import torch

from tests.backends.conformance import (
    check_element_types,
    check_empty_tensors,
    check_nested_inputs_and_outputs,
    check_other_values,
    exported_text,
    refusal_of_an_unknown_op,
)
from torchstone.backends.iree import Iree, refusal
from torchstone.backends.protocol import CompileFailed, Unsupported

installed = Iree().availability().usable
needs_it = pytest.mark.skipif(not installed, reason="the extra iree is not installed; `make test-backends` does it")
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")


@pytest.fixture(scope="module")
def backend() -> Iree:
    opened = Iree()
    opened.warm_up()
    return opened


@needs_it
@pytest.mark.heavy
def test_it_runs_what_eager_runs(backend: Iree) -> None:
    check_nested_inputs_and_outputs(backend)
    check_element_types(backend, torch.bfloat16)
    check_other_values(backend)
    check_empty_tensors(backend)
    backend.reset()


@needs_it
@pytest.mark.heavy
def test_the_text_is_its_own(backend: Iree) -> None:
    stages = exported_text(backend)

    assert list(stages) == ["torch-mlir"]
    assert "torch.aten.cat" in stages["torch-mlir"]


@needs_it
@pytest.mark.heavy
def test_an_op_without_a_rule_is_a_refusal_that_names_it(backend: Iree) -> None:
    assert refusal_of_an_unknown_op(backend).ops == ("aten.special_airy_ai",)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            "a.py:8:0: error: failed to legalize operation 'torch.operator' that was explicitly marked illegal: "
            '%0 = "torch.operator"(%arg0) <{name = "torch.aten.histc"}> : (!torch.vtensor<[3],f32>)',
            Unsupported,
            "no lowering for aten.histc",
        ),
        ("x: error: failed to legalize operation 'torch.aten.sort'", Unsupported, "no lowering for aten.sort"),
        (
            "error: failed to legalize operation 'torch.vtensor.literal': %11 = <{value = dense<true> : tensor<i1>}>",
            Unsupported,
            "no lowering for torch.vtensor.literal",
        ),
        ("x:1:2: error: 'stream.async' op broke\nnote: there", CompileFailed, "'stream.async' op broke"),
        ("LLVM ERROR: no memory", CompileFailed, "LLVM ERROR: no memory"),
        ("", CompileFailed, "the compiler said nothing"),
    ],
)
def test_what_the_compiler_says_is_understood(text: str, kind: type[Exception], said: str) -> None:
    found = refusal(text)

    assert type(found) is kind
    assert str(found) == said


@pytest.mark.skipif(installed, reason="the extra iree is installed")
def test_where_it_is_not_installed_it_says_what_to_install() -> None:
    found = Iree().availability()

    assert not found.usable
    assert found.reason.endswith("not installed")
    assert found.needs == "pip install 'torchstone[iree]'"
