"""Models that differentiate in unusual ways: in their forward pass, by transforms, over complex numbers, once more."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, jacrev

from torchstone.capture.capture_model import capture
from torchstone.cost import price
from torchstone.record.op import OpSignature
from torchstone.record.trace import Trace


class _Net(nn.Module):
    """A layer and what is done with it."""

    def __init__(self, layer: nn.Module, work: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.work = layer, work

    def forward(self, given: Tensor) -> Tensor:
        return self.work(self.layer, given)


def _signatures(trace: Trace) -> list[OpSignature]:
    return [trace.ops.signatures[number] for number in trace.ops.signature_of]


def _gradient(layer: nn.Module, given: Tensor) -> Tensor:
    made: Tensor = grad(lambda x: layer(x).sin().sum())(given)
    return made


def _jacobian(layer: nn.Module, given: Tensor) -> Tensor:
    made: Tensor = jacrev(lambda x: layer(x).tanh())(given[0])
    return made


@pytest.mark.parametrize("work", [_gradient, _jacobian])
@pytest.mark.parametrize("backward", [False, True])
def test_parameters_that_only_a_transform_uses_have_gradients(
    work: Callable[[nn.Module, Tensor], Tensor],
    backward: bool,  # noqa: FBT001 - parametrized
) -> None:
    net, given = _Net(nn.Linear(5, 3), work), torch.rand(4, 5)

    fake, real = (capture(net, given, mode, backward=backward) for mode in ("fake", "cpu"))

    assert _signatures(fake) == _signatures(real)
    assert {one.kind for one in fake.recorded_tensors.external if one.name} == {"parameter", "input"}
    assert price(fake).totals == price(real).totals


def _force(layer: nn.Module, given: Tensor) -> Tensor:
    at = given.detach().requires_grad_()
    return torch.autograd.grad(layer(at).sum(), at)[0]


@pytest.mark.parametrize("mode", ["fake", "cpu", "auto"])
def test_a_model_that_differentiates_inside_its_forward_pass_runs_with_autograd(mode: str) -> None:
    trace = capture(_Net(nn.Linear(5, 3), _force), torch.rand(2, 5), mode)

    assert trace.failure is None
    assert price(trace).totals.matmul_flops == 2 * 2 * (2 * 5 * 3)  # the layer, and the gradient of its input
    assert any("differentiates" in note for note in trace.notes)


def test_other_models_run_without_autograd_and_without_a_note() -> None:
    trace = capture(nn.Linear(5, 3), torch.rand(2, 5))

    assert trace.notes == ()
    assert not torch.is_grad_enabled() or trace.failure is None


@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_gradients_of_complex_outputs_are_recorded_and_not_left_behind(mode: str) -> None:
    layer = nn.Linear(5, 7, dtype=torch.complex64)

    trace = capture(layer, torch.rand(3, 5).to(torch.complex64), mode, backward=True)

    assert trace.failure is None
    assert price(trace).totals.matmul_flops == 2 * 8 * 3 * 5 * 7  # forward, and the gradient of the weight
    assert layer.weight.grad is None
    assert layer.bias.grad is None


@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_a_step_begins_without_the_gradients_of_an_earlier_one(mode: str) -> None:
    layer, given = nn.Linear(5, 7), torch.rand(3, 5)
    alone = capture(layer, given, mode, backward=True)
    layer(given).sum().backward()
    earlier = layer.weight.grad

    again = capture(layer, given, mode, backward=True)

    assert _signatures(again) == _signatures(alone)
    assert layer.weight.grad is earlier


class _Counting(nn.Module):
    """Counts its calls in a buffer, as optimizers and norms do."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 300)
        self.register_buffer("seen", torch.zeros(1000))

    def forward(self, given: Tensor) -> Tensor:
        self.seen += given.sum()
        out: Tensor = self.layer(given).relu()
        return out


@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_a_buffer_that_is_changed_in_place_and_assigned_again_stays(mode: str) -> None:
    net = _Counting()
    before = net.seen

    trace = capture(net, torch.rand(20, 5), mode, backward=True)

    assert price(trace).peak.weights_bytes == 4 * (1000 + 1500 + 300)
    assert net.seen is before
    assert not net.seen.any()


def test_an_op_without_a_kernel_for_sparse_tensors_fails_as_such() -> None:
    net = _Net(nn.Linear(5, 5), lambda layer, given: layer(given).to_sparse(1))

    trace = capture(net, torch.rand(3, 5, requires_grad=True), "cpu", backward=True)

    assert trace.failure is not None
    assert "SparseCPU" in trace.failure.error


def test_a_training_step_may_change_the_shape_of_a_tensor_in_place() -> None:
    net = _Net(nn.Linear(5, 3), lambda layer, given: layer(given).squeeze_(0).unsqueeze_(1))

    fake, real = (capture(net, torch.rand(1, 5), mode, backward=True) for mode in ("fake", "cpu"))

    assert fake.failure is None
    assert _signatures(fake) == _signatures(real)
