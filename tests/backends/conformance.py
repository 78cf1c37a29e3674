"""What every real backend must do: eager's numbers, nested as eager nests them, and refusals that name ops."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.backends.nets import nested
from torchstone.backends.protocol import Backend, Unsupported
from torchstone.backends.verdict import judge


class ElementTypes(nn.Module):
    """One result of each element type that models have."""

    def forward(self, halves: Tensor, whole: Tensor, doubles: Tensor, flags: Tensor) -> dict[str, Tensor]:
        return {"halves": halves @ halves, "whole": whole + 1, "doubles": doubles * 2, "flags": ~flags}


class Airy(nn.Module):
    """An op that no compiler has a rule for."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.special.airy_ai(x) + 1


def element_types(narrow: torch.dtype) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(5)
    halves = torch.randn(2, 2, generator=generator).to(narrow)
    return halves, torch.arange(3), torch.randn(2, generator=generator).double(), torch.tensor([True, False])


def check_nested_inputs_and_outputs(backend: Backend) -> None:
    module, args, kwargs = nested()

    verdict = judge(module(*args, **kwargs), backend.compile(module, args, kwargs)(*args, **kwargs))

    assert verdict["passed"], verdict["reason"]
    assert [leaf["path"] for leaf in verdict["leaves"] if "shape" in leaf] == [
        "logits", "hidden.0", "hidden.1", "cache.layers.0.keys"
    ]  # fmt: skip


def check_element_types(backend: Backend, narrow: torch.dtype) -> None:
    module, args = ElementTypes(), element_types(narrow)

    verdict = judge(module(*args), backend.compile(module, args, {})(*args))

    assert verdict["passed"], verdict["reason"]
    assert all(leaf["same_dtype"] for leaf in verdict["leaves"])


class Empty(nn.Module):
    """Gives a tensor without elements, as a cache before its first token is."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, :0] + 1, x + 1


def check_empty_tensors(backend: Backend) -> None:
    module, x = Empty(), torch.ones(2, 3)

    verdict = judge(module(x), backend.compile(module, (x,), {})(x))

    assert verdict["passed"], verdict["reason"]


def check_other_values(backend: Backend) -> None:
    """What was compiled takes other values of the same shapes: nothing of the example is baked in."""
    module, args, kwargs = nested()
    run = backend.compile(module, args, kwargs)
    other = tuple(value + 1 for value in args)

    verdict = judge(module(*other, **kwargs), run(*other, **kwargs))

    assert verdict["passed"], verdict["reason"]


def refusal_of_an_unknown_op(backend: Backend) -> Unsupported:
    with pytest.raises(Unsupported) as refused:
        backend.compile(Airy(), (torch.ones(3),), {})(torch.ones(3))
    return refused.value


def exported_text(backend: Backend) -> dict[str, Any]:
    module, args, kwargs = nested()
    return backend.export(module, args, kwargs)
