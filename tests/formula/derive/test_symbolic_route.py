import pytest
import sympy
import torch
from torch import nn

from tests.formula.derive.benches import bench
from torchstone.formula.derive.database_entries import text_of
from torchstone.formula.derive.symbolic_run import (
    NotSymbolicError,
    SymbolicCosts,
    new_mode,
    polynomial_of,
    run_symbolically,
)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.inner = Inner()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.inner(self.embed(input_ids))
        return made


def costs() -> SymbolicCosts:
    mode = new_mode()
    with mode:
        model = Net()
    return run_symbolically(model, torch.zeros((3, 5), dtype=torch.int64), bench().price, mode)


INNER = f"{Inner.__module__}.Inner"


def test_one_run_gives_polynomials_of_batch_and_length() -> None:
    flops, reads, writes = costs().by_class[INNER]

    assert text_of(flops) == "128 * ${B} * ${S}"
    assert text_of(reads) == "32 * ${B} * ${S} + 256"
    assert text_of(writes) == "32 * ${B} * ${S}"


def test_modules_that_read_tokens_are_left_out() -> None:
    assert list(costs().by_class) == [INNER]


def test_only_polynomials_cross_over_from_sympy() -> None:
    x, y = sympy.symbols("s0 s1", integer=True)
    names = {"s0": "B", "s1": "S"}

    assert text_of(polynomial_of(3 * x * y**2 + 1, names)) == "3 * ${B} * ${S}**2 + 1"
    with pytest.raises(NotSymbolicError, match="not a polynomial"):
        polynomial_of(sympy.Mod(x, 2), names)
