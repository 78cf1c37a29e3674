from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.capture.nets import Feed, Stack
from torchstone.capture import capture
from torchstone.models.load_model import load
from torchstone.record.op import Phase
from torchstone.record.trace import Trace


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


@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_what_a_module_computes_between_two_of_its_parts_is_credited_to_it(mode: str) -> None:
    """The nodes of the output projection hide those of the attention before it."""
    trace = capture(nn.Sequential(Attends()), torch.randn(2, 3, 8), mode, backward=True)

    credited = {(call.op, trace.module_path_of(call)) for call in trace.ops if call.phase is Phase.BACKWARD}
    assert ("aten.tanh_backward.default", "0") in credited
    assert ("aten.mm.default", "0.value") in credited
    assert ("aten.mm.default", "0.out") in credited
    assert all(call.module_call >= 0 for call in trace.ops)


@pytest.mark.parametrize("model", ["tiny:llama", "tiny:vit", "tiny:t5"])
def test_no_op_of_a_backward_pass_is_outside_the_model(model: str) -> None:
    loaded = load(model)
    trace = capture(loaded.model, loaded.inputs, backward=True)
    attention = [call for call in trace.ops if "attention" in call.op and call.phase is Phase.BACKWARD]

    assert all(call.module_call >= 0 for call in trace.ops)
    assert all("att" in trace.module_path_of(call).lower() for call in attention)


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(8, 8)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.out(self.value(x).tanh()))


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


class _SeenByTorch(TorchDispatchMode):
    """The names of the ops that torch calls."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", ["fake", "cpu"])
@pytest.mark.parametrize("activation", [nn.SiLU, nn.Mish, partial(nn.ChannelShuffle, 2)])
def test_an_op_that_consists_of_others_and_has_a_kernel_is_recorded_as_one(
    activation: Callable[[], nn.Module], mode: str
) -> None:
    """As `silu_backward` in every training step of a Llama."""
    model, x = nn.Sequential(nn.Conv2d(4, 4, 1), activation()), torch.rand(2, 4, 5, 5)

    trace = capture(model, x, mode, backward=True)
    with _SeenByTorch() as seen:
        result = model(x)
        result.backward(torch.ones_like(result))

    assert [call.op for call in trace.ops] == seen.names


class WritesToView(nn.Module):
    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.up, self.relu = nn.Linear(8, 8), nn.ReLU(in_place)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.up(x)) * 2
        return out


@pytest.mark.parametrize(("rank", "in_place", "expected"), [(3, True, 1), (2, True, 0), (3, False, 0)])
def test_a_write_to_a_view_is_named_where_autograd_undoes_it_in_another_way(
    rank: int, expected: int, *, in_place: bool
) -> None:
    model, x = WritesToView(in_place=in_place), torch.rand((3, 40, 8)[-rank:])
    trace, real = capture(model, x, "fake", backward=True), capture(model, x, "cpu", backward=True)

    def names(one: Trace) -> list[str]:
        return [one.ops.signatures[number].op for number in one.ops.signature_of]

    assert sum("in place on a view" in note for note in trace.notes) == expected
    assert (names(trace) != names(real)) == bool(expected)
    assert not real.notes
