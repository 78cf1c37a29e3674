from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from tests.capture.nets import CachedStack, Feed, cache
from torchstone.capture import capture
from torchstone.record.trace import producers
from torchstone.record.value import Absent, Fields, show_value

MODES = ("meta", "fake", "cpu")


@dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...] | None = None


class Net(nn.Module):
    """Keyword arguments, a dataclass out, a module called twice, one never called, one called by another method."""

    def __init__(self) -> None:
        super().__init__()
        self.feed = Feed()
        self.unused = nn.Linear(3, 3)
        self.table = nn.Linear(8, 8)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Output:
        first = self.feed(x)
        second = self.feed(first * scale)
        return Output(logits=second @ self.table.weight, hidden=(first, second))


@pytest.mark.parametrize("mode", MODES)
def test_calls_are_recorded_as_they_were_made(mode: str) -> None:
    trace = capture(Net(), ((torch.zeros(2, 8),), {"scale": 0.5}), mode)

    root = trace.module_calls[0]
    assert [(argument.name, argument.position) for argument in root.signature.arguments] == [("x", 0), ("scale", None)]
    assert show_value(root.signature.output) == "Output(logits=float32[2, 8], hidden=(float32[2, 8], float32[2, 8]))"
    paths = [trace.modules[call.module].path for call in trace.module_calls]
    assert paths == ["", "feed", "feed.up", "feed.down", "feed", "feed.up", "feed.down"]
    assert "unused" not in paths
    assert (root.first_op, root.end_op) == (0, len(trace.ops))


@pytest.mark.parametrize("mode", MODES)
def test_data_flows_through_calls(mode: str) -> None:
    trace = capture(Net(), torch.zeros(2, 8), mode)

    first, second = (call for call in trace.module_calls if trace.modules[call.module].path == "feed")
    scale = next(call for call in trace.ops if call.op == "aten.mul.Tensor")
    assert scale.inputs[0] == first.outputs[0]
    assert second.inputs == scale.outputs
    assert list(producers(trace))[scale.index] == (first.end_op - 1,)


def test_a_parameter_used_without_its_module_is_known_by_name() -> None:
    trace = capture(Net(), torch.zeros(2, 8))

    names = {external.tensor: external.name for external in trace.tensors.external}
    matmul = next(call for call in trace.ops if call.op == "aten.mm.default")
    assert names[matmul.inputs[1]] == "table.weight"


def test_inputs_are_known_by_name() -> None:
    trace = capture(CachedStack(2), {"x": torch.zeros(1, 2, 8), "past": cache(2, keys=torch.zeros(1, 3, 8))})

    names = [external.name for external in trace.tensors.external if external.kind == "input"]
    assert names == ["x", "past[0]"]


def test_a_cache_is_described_for_the_layer_it_is_given_to() -> None:
    trace = capture(CachedStack(3), {"x": torch.zeros(1, 2, 8), "past": cache(3)})

    layer = next(call for call in trace.module_calls if trace.modules[call.module].path == "layers.1")
    past = {argument.name: argument.value for argument in layer.signature.arguments}["past"]
    assert isinstance(past, Fields)
    assert show_value(past) == "CacheObject(entries={'this layer': PlainObject(keys=None, length=0)})"


def test_a_call_that_did_not_return_has_no_output() -> None:
    trace = capture(nn.Sequential(nn.Linear(3, 3)), torch.zeros(1, 4))

    assert [call.signature.output for call in trace.module_calls] == [Absent(), Absent()]


def test_an_error_that_the_model_catches_is_no_failure() -> None:
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.first(x)
            except RuntimeError:
                return self.second(x)

    trace = capture(Careful(), torch.zeros(1, 4))

    assert trace.failure is None
    assert [trace.modules[call.module].path for call in trace.module_calls] == ["", "first", "second"]


def test_a_model_in_training_mode_stays_in_training_mode() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.BatchNorm1d(8)).train()

    trace = capture(model, torch.zeros(4, 8))

    assert trace.failure is None
    assert model.training
    assert any("dropout" in call.op or "bernoulli" in call.op for call in trace.ops)
