import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.capture.capture_model import About
from torchstone.models.prepare import free_bytes, memory_shortage


class Huge(nn.Module):
    """Sixty-four tebibytes of weights, and a branch that needs their values."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1 << 22, 1 << 22, device="meta"))

    def forward(self, x: Tensor) -> Tensor:
        return x if self.weight[0, 0] > 0 else -x


def test_a_small_model_fits() -> None:
    assert memory_shortage(nn.Linear(2, 2)) == ""


def test_a_huge_one_does_not_and_the_way_out_is_said() -> None:
    reason = memory_shortage(Huge())

    assert "64.0 TiB of weights do not fit" in reason
    assert "--layers" in reason


def test_what_does_not_fit_is_not_built() -> None:
    def build() -> nn.Module:
        raise AssertionError

    trace = capture(Huge(), torch.zeros(1), about=About(materialise=build))

    assert trace.assumed == ("aten.gt.Scalar tests values drawn from a standard normal distribution: 1 of 1 are true",)
    assert trace.provenance.mode == "fake"
    assert "some values are assumed" in trace.provenance.mode_reason


def test_the_system_says_what_is_free() -> None:
    free = free_bytes()

    assert free is None or free > 1 << 20
