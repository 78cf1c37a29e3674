import pytest
import torch
from torch import Tensor, nn

from tests.backends.conformance import (
    check_element_types,
    check_empty_tensors,
    check_nested_inputs_and_outputs,
    check_other_values,
    check_weights_that_want_gradients,
    exported_text,
    refusal_of_an_unknown_op,
)
from torchstone.backends.onnx_runtime import OnnxRuntime
from torchstone.backends.protocol import CompileFailed, Unsupported

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning"),
    pytest.mark.skipif(not OnnxRuntime().availability().usable, reason="onnx, onnxscript or onnxruntime is missing"),
]


@pytest.fixture(scope="module")
def backend() -> OnnxRuntime:
    opened = OnnxRuntime()
    opened.warm_up()
    return opened


def test_it_runs_what_eager_runs(backend: OnnxRuntime) -> None:
    check_nested_inputs_and_outputs(backend)
    check_element_types(backend, torch.float16)
    check_weights_that_want_gradients(backend)
    backend.reset()


def test_bfloat16_goes_in_and_out_without_a_cast(backend: OnnxRuntime) -> None:
    class Reshaped(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(3, 8)

    x = torch.randn(2, 12).to(torch.bfloat16)

    y = backend.compile(Reshaped(), (x,), {})(x)

    assert y.dtype is torch.bfloat16
    assert torch.equal(y, x.reshape(3, 8))


@pytest.mark.heavy
def test_nothing_of_the_example_is_baked_in(backend: OnnxRuntime) -> None:
    check_other_values(backend)
    check_empty_tensors(backend)


def test_the_text_is_onnx_without_the_weights(backend: OnnxRuntime) -> None:
    stages = exported_text(backend)

    assert list(stages) == ["onnx"]
    assert "Gemm" in stages["onnx"]
    assert len(stages["onnx"]) < 5_000


def test_an_op_without_an_onnx_function_is_a_refusal_that_names_it(backend: OnnxRuntime) -> None:
    refused = refusal_of_an_unknown_op(backend)

    assert refused.ops == ("aten.special_airy_ai.default",)


@pytest.mark.heavy
def test_an_onnx_op_without_a_kernel_is_a_refusal_that_names_it(backend: OnnxRuntime) -> None:
    class HalfProduct(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x

    with pytest.raises(Unsupported) as refused:
        backend.compile(HalfProduct(), (torch.ones(2).bfloat16(),), {})

    assert refused.value.ops == ("onnx.Mul",)


def test_what_cannot_be_exported_is_a_failure_to_compile(backend: OnnxRuntime) -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if float(x.sum()) > 0 else x

    with pytest.raises(CompileFailed, match=r"torch\.export"):
        backend.compile(Branches(), (torch.ones(2),), {})


def test_it_names_the_versions_a_result_depends_on(backend: OnnxRuntime) -> None:
    assert [part.split()[0] for part in backend.availability().version.split(", ")] == [
        "torch", "onnx", "onnxscript", "onnxruntime"
    ]  # fmt: skip
