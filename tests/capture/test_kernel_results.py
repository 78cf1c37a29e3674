"""Results without data where torch's own rules differ from its kernels: what is recorded is what a real run records."""

from copy import deepcopy
from itertools import product

import pytest
import torch
from torch import nn

from torchstone.capture.capture_model import capture
from torchstone.record.op import OpSignature
from torchstone.record.trace import Trace


class _Held(nn.Module):
    """A layer whose input is a parameter, so that nothing in the run has values."""

    def __init__(self, layer: nn.Module, given: torch.Tensor) -> None:
        super().__init__()
        self.layer, self.given = layer, nn.Parameter(given)

    def forward(self) -> object:
        return self.layer(self.given)


class _Mixed(nn.Module):
    """A net for images in mixed precision."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.GroupNorm(2, 4))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out: torch.Tensor = self.stack(given)
        return out


def _pair(model: nn.Module, *, backward: bool) -> tuple[Trace, Trace]:
    fake, real = (capture(model, (), mode, backward=backward) for mode in ("fake", "cpu"))
    return fake, real


def _signatures(trace: Trace) -> list[OpSignature]:
    return [trace.ops.signatures[number] for number in trace.ops.signature_of]


_NORMS = (nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm(3), nn.InstanceNorm2d(4, affine=True))


@pytest.mark.parametrize("norm", _NORMS, ids=lambda norm: type(norm).__name__)
@pytest.mark.parametrize(("training", "backward"), list(product((False, True), repeat=2)))
def test_norms_of_narrow_types_with_wide_parameters_save_wide_statistics(
    norm: nn.Module,
    training: bool,  # noqa: FBT001 - parametrized
    backward: bool,  # noqa: FBT001 - parametrized
) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        model = _Held(norm, torch.rand(2, 4, 5, 3, dtype=dtype)).train(training)

        fake, real = _pair(model, backward=backward)

        assert real.failure is None
        assert _signatures(fake) == _signatures(real)


@pytest.mark.parametrize("norm", _NORMS, ids=lambda norm: type(norm).__name__)
@pytest.mark.parametrize("given", [torch.float32, torch.float64])
def test_norms_refuse_the_types_that_their_kernels_refuse(norm: nn.Module, given: torch.dtype) -> None:
    model = _Held(deepcopy(norm).to(torch.bfloat16), torch.rand(2, 4, 5, 3, dtype=given))

    fake, real = _pair(model, backward=False)

    assert fake.failure is not None
    assert real.failure is not None
    assert (fake.failure.module, fake.failure.op) == (real.failure.module, real.failure.op)


@pytest.mark.parametrize("backward", [False, True])
def test_a_net_in_mixed_precision_is_the_same_without_data(backward: bool) -> None:  # noqa: FBT001 - parametrized
    fake, real = _pair(_Held(_Mixed(), torch.rand(2, 3, 7, 5)), backward=backward)

    assert _signatures(fake) == _signatures(real)


def test_an_lstm_keeps_a_workspace_for_training_alone() -> None:
    fake, real = _pair(_Held(nn.LSTM(5, 7, 2), torch.rand(3, 2, 5)).eval(), backward=False)

    assert _signatures(fake) == _signatures(real)


def test_the_gradients_of_both_biases_of_an_lstm_are_taken_without_a_copy() -> None:
    fake, real = _pair(_Held(nn.LSTM(5, 7, bidirectional=True), torch.rand(3, 2, 5)), backward=True)

    assert [call.op for call in fake.ops] == [call.op for call in real.ops]


def test_attention_weights_that_nobody_asks_for_are_no_result() -> None:
    model = _Held(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), torch.rand(2, 3, 8)).eval()
    model.forward = lambda: model.layer(model.given, model.given)  # type: ignore[method-assign]

    fake, real = _pair(model, backward=False)

    assert _signatures(fake) == _signatures(real)
