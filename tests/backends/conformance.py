"""What every real backend must do: eager's numbers, nested as eager nests them, and refusals that name ops."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.backends.nets import nested
from torchstone.backends.protocol import Backend, Unsupported
from torchstone.numerics.verdict import judge


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


class ReadsOne(nn.Module):
    """Takes three tensors and reads the values of the last one only, as rotary embeddings do."""

    def forward(self, nothing: Tensor, like: Tensor, x: Tensor) -> Tensor:  # noqa: ARG002 - that is the point
        return x + like.new_ones(2, 2)


def check_inputs_that_nobody_reads(backend: Backend) -> None:
    module, args = ReadsOne(), (torch.ones(3), torch.ones(4, 5), torch.arange(4.0).reshape(2, 2))

    verdict = judge(module(*args), backend.compile(module, args, {})(*args))

    assert verdict["passed"], verdict["reason"]


class Biased(nn.Module):
    """Attention with a learned bias, as T5 and Swin have it: a view of its result only fits one layout of it."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1, 2, 4, 4))

    def forward(self, x: Tensor) -> Tensor:
        heads = x.view(1, 4, 2, 8).transpose(1, 2)
        mixed = nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=2 * self.bias)
        return mixed.transpose(1, 2).view(1, 4, 16)


def check_weights_that_want_gradients(backend: Backend) -> None:
    """They are compiled as they run: without gradients."""
    module, x = Biased().eval(), torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(7))

    with torch.no_grad():
        expected = module(x)

    verdict = judge(expected, backend.compile(module, (x,), {})(x))

    assert verdict["passed"], verdict["reason"]


def refusal_of_an_unknown_op(backend: Backend) -> Unsupported:
    with pytest.raises(Unsupported) as refused:
        backend.compile(Airy(), (torch.ones(3),), {})(torch.ones(3))
    return refused.value


def exported_text(backend: Backend) -> dict[str, Any]:
    module, args, kwargs = nested()
    return backend.export(module, args, kwargs)


class HeavyBackend:
    """The tests of a backend that is heavy to install; its own test file says what differs."""

    backend_class: type[Backend]
    extra: str
    stage: str  # the one that it exports
    word: str  # of that stage's text

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> Backend:
        opened = cls.backend_class()
        if not opened.availability().usable:
            pytest.skip(f"the extra {cls.extra} is not installed; `make test-backends` does it")
        opened.warm_up()
        return opened

    @pytest.mark.heavy
    def test_it_runs_what_eager_runs(self, backend: Backend) -> None:
        check_nested_inputs_and_outputs(backend)
        check_element_types(backend, torch.bfloat16)
        check_other_values(backend)
        check_empty_tensors(backend)
        check_weights_that_want_gradients(backend)
        check_inputs_that_nobody_reads(backend)
        backend.reset()

    @pytest.mark.heavy
    def test_the_text_is_its_own(self, backend: Backend) -> None:
        stages = exported_text(backend)

        assert list(stages) == [self.stage]
        assert self.word in stages[self.stage]

    @pytest.mark.heavy
    def test_an_op_without_a_rule_is_a_refusal_that_names_it(self, backend: Backend) -> None:
        assert refusal_of_an_unknown_op(backend).ops == ("aten.special_airy_ai.default",)

    def test_where_it_is_not_installed_it_says_what_to_install(self) -> None:
        found = self.backend_class().availability()
        if found.usable:
            pytest.skip(f"the extra {self.extra} is installed")

        assert found.reason.endswith("not installed")
        assert found.needs == f"pip install 'torchstone[{self.extra}]'"
