import pytest
import torch
from torch import nn

from tests.capture.nets import Feed, Stack
from torchstone.capture import capture
from torchstone.record.op import Phase


@pytest.mark.parametrize("mode", ["meta", "fake", "cpu"])
def test_backward_ops_are_credited_to_the_module_they_undo(mode: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 2)))

    trace = capture(model, torch.randn(3, 4), mode, backward=True)

    assert trace.failure is None
    backward = [call for call in trace.ops if call.phase is Phase.BACKWARD]
    credited = {call.op: trace.module_path_of(call) for call in backward}
    assert credited["aten.native_layer_norm_backward.default"] == "2.0"
    assert credited["aten.threshold_backward.default"] == "1"
    assert [trace.module_path_of(call) for call in backward if call.op == "aten.mm.default"] == ["2.1", "2.1", "0"]


def test_no_gradient_is_left_behind() -> None:
    model = Feed()

    capture(model, torch.randn(2, 8), backward=True)

    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("mode", ["meta", "fake", "cpu"])
def test_every_trainable_parameter_has_its_gradient(mode: str) -> None:
    last = nn.Linear(8, 2)
    last.bias.requires_grad = False
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), last)

    trace = capture(model, torch.randn(3, 4), mode, backward=True)

    names = {external.tensor: external.name for external in trace.tensors.external}
    shapes = {names[one]: trace.tensors[gradient].spec.shape for one, gradient in trace.tensors.gradients.items()}
    assert shapes == {"0.weight": (8, 4), "0.bias": (8,), "2.weight": (2, 8)}


def test_a_model_without_anything_to_train_fails_with_the_reason() -> None:
    trace = capture(Feed().requires_grad_(requires_grad=False), torch.randn(2, 8), "cpu", backward=True)

    assert trace.failure is not None
    assert "trainable" in trace.failure.error


def test_repeated_layers_are_all_run() -> None:
    trace = capture(Stack(Feed(), Feed()), torch.randn(2, 8), backward=True)

    assert trace.provenance.reused_ops == 0
    assert trace.ops.forward_calls < len(trace.ops)
