"""Values on hardware, which is not here: a library that computes with torch stands for ttnn and its device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from torchstone.backends.ttnn.rebuild import Call
from torchstone.sweep.child.ttnn_golden import NO_REFERENCE, compare_values


@dataclass
class OnDevice:
    values: torch.Tensor
    dtype: str = "DataType.BFLOAT16"
    layout: str = "TILE"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def device(self) -> str:
        return "a device"

    def memory_config(self) -> str:
        return "DRAM"


class Library:
    Tensor = OnDevice

    def __init__(self, reference: Callable[..., Any] | None) -> None:
        self.reference = reference
        self.made: list[dict[str, Any]] = []

    def get_golden_function(self, operation: Callable[..., object]) -> Callable[..., Any]:
        if self.reference is None:
            msg = f"{operation} does not have a golden function"
            raise RuntimeError(msg)
        return self.reference

    def from_torch(self, tensor: torch.Tensor, **how: Any) -> OnDevice:
        self.made.append(how)
        return OnDevice(tensor.bfloat16() if tensor.is_floating_point() else tensor, how["dtype"])

    def to_torch(self, tensor: OnDevice) -> torch.Tensor:
        return tensor.values


def add(first: OnDevice, second: OnDevice, *, alpha: float = 1.0) -> OnDevice:
    return OnDevice(first.values + alpha * second.values)


def concat(tensors: list[OnDevice], dim: int) -> list[OnDevice]:
    return [OnDevice(torch.cat([one.values for one in tensors], dim))]


def empty(*shape: int, dtype: str = "DataType.BFLOAT16") -> OnDevice:
    return OnDevice(torch.empty(shape), dtype)


def test_a_call_that_agrees_with_the_reference_passes() -> None:
    library = Library(lambda a, b, alpha: a + alpha * b)
    found = compare_values(Call(add, [empty(32, 64), empty(32, 64)], {"alpha": 2.0}), library)

    assert found["passed"]
    assert library.made[0] == {
        "dtype": "DataType.BFLOAT16", "layout": "TILE", "device": "a device", "memory_config": "DRAM",
    }  # fmt: skip


@pytest.mark.parametrize("wrong", [lambda a, b, alpha: a - alpha * b, lambda a, b, alpha: (a + alpha * b)[:16]])
def test_a_call_that_does_not_is_wrong(wrong: Callable[..., Any]) -> None:
    assert not compare_values(Call(add, [empty(32, 64), empty(32, 64)], {"alpha": 2.0}), Library(wrong))["passed"]


def test_lists_of_tensors_and_integers_have_values_too() -> None:
    library = Library(torch.cat)
    call = Call(concat, [[empty(4, 4), empty(4, 4, dtype="DataType.UINT32")], 0])

    assert compare_values(call, library)["passed"]


def test_an_op_without_a_reference_stays_accepted() -> None:
    assert compare_values(Call(add, [empty(2), empty(2)]), Library(None)) == {"reason": NO_REFERENCE}
