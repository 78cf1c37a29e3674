"""Ops that a capture cannot see are named in its notes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from torchstone.capture import capture

MODULE_CALL = "1 module call on other threads, whose ops are not recorded: Linear"
TENSOR = "1 tensor made by ops that are not recorded: on other threads, or where torch's modes are off"


class Elsewhere(nn.Module):
    def __init__(self, run: Callable[["Elsewhere", Tensor], Tensor]) -> None:
        super().__init__()
        self.up, self.down, self.run = nn.Linear(8, 8), nn.Linear(8, 8), run

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.run(self, x))
        return out


def call_on_a_thread(model: Elsewhere, x: Tensor) -> Tensor:
    with ThreadPoolExecutor(1) as pool:
        found: Tensor = pool.submit(model.up, x).result()
    return found


def add_on_a_thread(model: Elsewhere, x: Tensor) -> Tensor:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: x @ model.up.weight).result()


def add_without_modes(model: Elsewhere, x: Tensor) -> Tensor:
    with _disable_current_modes():
        return x @ model.up.weight


@pytest.mark.parametrize(
    ("run", "mode", "notes"),
    [
        (call_on_a_thread, "fake", (MODULE_CALL, TENSOR)),
        (call_on_a_thread, "cpu", (MODULE_CALL,)),
        (add_on_a_thread, "fake", (TENSOR,)),
        (add_without_modes, "fake", (TENSOR,)),
        (lambda _model, x: x.data * 2, "fake", ()),
    ],
)
def test_ops_that_are_not_seen_are_named(
    run: Callable[[Elsewhere, Tensor], Tensor], mode: str, notes: tuple[str, ...]
) -> None:
    trace = capture(Elsewhere(run).eval(), torch.rand(50, 8), mode)

    assert trace.failure is None
    assert trace.notes == notes
