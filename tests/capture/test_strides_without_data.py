"""Tensors without data lie in memory as real ones do: later ops choose other kernels where they do not."""

import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.models import load
from torchstone.record.op import OpSignature


class _NormThenLinear(nn.Module):
    """As in PatchTST: batch norm over the channels of a transposed sequence, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(6).eval(), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.linear(self.norm(x.transpose(1, 2)).transpose(1, 2))
        return made


class _SequenceToImage(nn.Module):
    """As in Swin2SR: tokens become an image through a view of transposed memory, then a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.linear = nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        image = self.convolution(x.transpose(1, 2).view(x.shape[0], 6, 4, 4))
        made: Tensor = self.linear(image.flatten(2).transpose(1, 2))
        return made


class _ImageNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(6).eval()

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.norm(x.view(x.shape[0], 4, 4, 6).permute(0, 3, 2, 1))
        return made.flatten(1)


def _signatures(model: nn.Module, inputs: object, mode: str) -> list[OpSignature]:
    trace = capture(model, inputs, mode)
    assert trace.failure is None
    return [call.signature for call in trace.ops]


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("model", [_NormThenLinear(), _SequenceToImage(), _ImageNorm()])
def test_every_op_has_the_strides_of_a_real_run(model: nn.Module, batch: int) -> None:
    x = torch.zeros(batch, 16, 6)
    assert _signatures(model, (x,), "fake") == _signatures(model, (x,), "cpu")


@pytest.mark.parametrize("name", ["patchtst", "swin2sr"])
def test_models_take_the_same_kernels(name: str) -> None:
    fake, real = (
        [signature.op for signature in _signatures(*load(f"tiny:{name}", device=device), mode)]
        for device, mode in (("meta", "fake"), ("cpu", "cpu"))
    )
    assert fake == real
