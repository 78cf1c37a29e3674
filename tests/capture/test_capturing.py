import msgspec
import pytest
import torch
from torch import nn

from tests.capture.nets import Attention, Broken, Feed, ReadsMask, ReadsWeights, Stack
from torchstone.capture import capture
from torchstone.capture.capture_model import About
from torchstone.errors import CaptureError, ModelInputsError
from torchstone.record.trace import Trace

MODES = ("meta", "fake", "cpu")


def ops_of(trace: Trace) -> list[str]:
    return [call.op for call in trace.ops]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_sees_the_ops_of_a_real_run(mode: str) -> None:
    trace = capture(Stack(Feed(), Feed()), torch.randn(2, 8), mode)

    linear = ["aten.t.default", "aten.addmm.default"]
    assert ops_of(trace) == [*linear, "aten.leaky_relu.default", *linear] * 2
    assert trace.failure is None
    assert trace.provenance.mode == mode


def test_the_same_capture_twice_gives_the_same_record() -> None:
    model, inputs = Stack(Feed(), Attention()), torch.randn(2, 3, 8)

    first, second = (without_time(capture(model, inputs)) for _ in range(2))

    assert first == second


def without_time(trace: Trace) -> Trace:
    return msgspec.structs.replace(trace, provenance=msgspec.structs.replace(trace.provenance, created=""))


def test_auto_does_what_a_real_run_does() -> None:
    trace = capture(Attention(), torch.randn(1, 2, 4, 8))

    assert trace.provenance.mode == "fake"
    assert "aten._scaled_dot_product_flash_attention_for_cpu.default" in ops_of(trace)
    assert trace.notes == ()


def test_asked_for_meta_says_what_a_real_run_would_do_otherwise() -> None:
    trace = capture(Attention(), torch.randn(1, 2, 4, 8), "meta")

    assert "aten._safe_softmax.default" in ops_of(trace)
    assert trace.notes == ("unlike in a real run, fused attention is taken apart",)


def test_auto_takes_the_cpu_where_code_reads_values_that_come_from_weights() -> None:
    trace = capture(ReadsWeights(), torch.randn(2, 4))

    assert trace.provenance.mode == "cpu"
    assert "fake tensors stop with" in trace.provenance.mode_reason
    assert trace.failure is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("mask", "last"), [(torch.tensor([[1], [1]]), "addmm"), (torch.tensor([[1], [0]]), "mul")])
def test_values_that_are_given_decide_branches_in_every_mode(mode: str, mask: torch.Tensor, last: str) -> None:
    trace = capture(ReadsMask(), {"x": torch.randn(2, 4), "mask": mask}, mode)

    assert trace.failure is None
    assert last in [op for op in ops_of(trace) if op.split(".")[1] in {"addmm", "mul"}][-1]


def test_auto_runs_everything_where_code_expects_that_every_layer_really_ran() -> None:
    class Notes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ran.append(self)
            return x * 2

    class Checks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Notes() for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ran.clear()
            for layer in self.layers:
                x = layer(x)
            if ran != list(self.layers):
                msg = "a layer was left out"
                raise RuntimeError(msg)
            return x

    ran: list[nn.Module] = []

    trace = capture(Checks(), torch.zeros(1 << 23))

    assert trace.failure is None
    assert (trace.provenance.mode, trace.provenance.reused_ops) == ("fake", 0)


def test_a_model_that_raises_gives_everything_up_to_that_point() -> None:
    trace = capture(Broken(), torch.randn(3, 4))

    assert trace.failure is not None
    assert trace.failure.module == "second.0"
    assert trace.failure.op == "aten.addmm.default"
    assert "mat1=float32[3, 4], mat2=float32[5, 5]" in trace.failure.arguments
    assert "shapes cannot be multiplied" in trace.failure.error
    assert "nets.py" in trace.failure.location
    assert ops_of(trace) == ["aten.t.default", "aten.addmm.default", "aten.t.default"]
    assert len(trace.module_calls) == 4


def test_python_that_raises_between_ops_names_the_module_and_no_op() -> None:
    class Careless(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            known: dict[str, torch.Tensor] = {"x": x}
            return known["missing"]

    trace = capture(Stack(Feed(), Careless()), torch.randn(2, 8))

    assert trace.failure is not None
    assert (trace.failure.module, trace.failure.op) == ("layers.1", "")
    assert trace.failure.error == "KeyError: 'missing'"


@pytest.mark.parametrize(
    "inputs",
    [
        torch.zeros(2, 8),
        (torch.zeros(2, 8),),
        [torch.zeros(2, 8)],
        {"x": torch.zeros(2, 8)},
        ((torch.zeros(2, 8),), {}),
        ((), {"x": torch.zeros(2, 8)}),
    ],
)
def test_inputs_may_be_spelled_in_every_usual_way(inputs: object) -> None:
    trace = capture(Feed(), inputs)

    assert trace.failure is None
    assert [argument.name for argument in trace.module_calls[0].signature.arguments] == ["x"]


def test_what_is_no_input_is_refused() -> None:
    with pytest.raises(ModelInputsError, match="tensor"):
        capture(Feed(), 3)


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CaptureError, match="auto, meta, fake, cpu, cuda"):
        capture(Feed(), torch.zeros(2, 8), "gpu")


def test_a_model_without_values_cannot_run_on_the_cpu() -> None:
    with pytest.raises(CaptureError, match="--mode fake"):
        capture(Feed().to("meta"), torch.zeros(2, 8), "cpu")


def test_a_model_without_values_is_built_with_values_when_they_are_needed() -> None:
    about = About(materialise=ReadsWeights)

    trace = capture(ReadsWeights().to("meta"), torch.randn(2, 4), about=about)

    assert trace.provenance.mode == "cpu"
    assert trace.failure is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="this is about machines without a CUDA device")
def test_cuda_without_a_device_is_refused() -> None:
    with pytest.raises(CaptureError, match="no CUDA device"):
        capture(Feed(), torch.zeros(2, 8), "cuda")


def test_the_record_says_where_it_comes_from() -> None:
    about = About(
        model="net.py::load", phase="prefill", inputs="made up", command="torchstone inspect", notes=("a note",)
    )

    trace = capture(Feed(), torch.zeros(2, 8), about=about)

    assert (trace.provenance.model, trace.provenance.phase, trace.notes) == ("net.py::load", "prefill", ("a note",))
    assert trace.provenance.versions["torch"] == str(torch.__version__)


def test_a_model_whose_shapes_are_not_known_says_what_to_do() -> None:
    with pytest.raises(CaptureError, match=r"0\.weight is lazy .* call the model once"):
        capture(nn.Sequential(nn.LazyLinear(2)), torch.ones(1, 4))
