"""A captured training step does in place what a real one does, although a dispatch mode looks on."""

import copy
import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from torchstone.capture import capture
from torchstone.record.trace import Trace

_SIDE = 64
_BYTES = 4 * _SIDE * _SIDE


class _Weighted(nn.Module):
    """`compute` of a tensor that requires a gradient."""

    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(_SIDE, _SIDE))
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(self.weight * x)


_kept: list[Tensor] = []


def _really(model: nn.Module, x: Tensor) -> tuple[int, Counter[str]]:
    """The peak of a step that no mode looks at, by torch's allocator on the CPU, and the ops by torch's profiler."""
    for _ in range(2):  # the first run of an op allocates more than the second
        gc.collect()
        _kept.clear()
        model.zero_grad()
        with torch.enable_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            output = model(x)
            torch.autograd.backward([output], [torch.ones_like(output)])
        del output
    events = sorted(seen.profiler.kineto_results.events(), key=lambda one: one.start_ns())
    held = most = 0
    for event in events:
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most, Counter(event.name() for event in events)


def _rise(trace: Trace) -> int:
    assert trace.failure is None
    assert trace.eager_memory is not None
    return trace.eager_memory.peak_bytes - trace.eager_memory.before_bytes


def _ops(trace: Trace) -> Counter[str]:
    names = (trace.ops.signatures[number].op.split(".") for number in trace.ops.signature_of)
    return Counter(f"{library}::{op}" for library, op, *_ in names)


def _expect_the_step_of_a_real_run(compute: Callable[[Tensor], Any], modes: tuple[str, ...] = ("fake", "cpu")) -> None:
    model, x = _Weighted(compute), torch.ones(_SIDE, _SIDE)
    most, names = _really(copy.deepcopy(model), x)
    for mode in modes:
        _kept.clear()
        trace = capture(model, x, mode, backward=True)
        ops = _ops(trace)
        assert _rise(trace) == pytest.approx(most, abs=64)  # numbers that ops make tensors of
        for name in ("add", "add_", "scatter_add", "scatter_add_", "scatter", "scatter_"):
            assert ops[f"aten::{name}"] == names[f"aten::{name}"], (mode, name)


_MEETING: dict[str, Callable[[Tensor], Tensor]] = {
    "two parts": lambda h: h.select(0, 1) + h.select(0, 2),
    "three": lambda h: h.sin() + h.cos() + h.exp(),
    "both factors": lambda h: h * h,
    "both sides of a product": lambda h: h @ h,
    "passed on as it is": lambda h: h + h.sin(),
    "the same twice": lambda h: h + h,
    "a view": lambda h: h.t().cos() + h.sin(),
    "of a view": lambda h: h.sin() + h.t().cos(),
    "expanded": lambda h: h.sin() + h.sum(0, keepdim=True) * 1,
    "slices": lambda h: torch.stack([part.sin() for part in h.split(8)]),
    "norm": lambda h: h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6),
    "complex": lambda h: torch.view_as_real(torch.complex(h, h.sin()) * torch.complex(h, h)),
    "scattered": lambda h: h.scatter(0, torch.zeros(1, _SIDE, dtype=torch.long), h[:1]),
    "written in place": lambda h: h.sin().mul_(2) + h,
}


@pytest.mark.parametrize("compute", _MEETING.values(), ids=_MEETING)
def test_gradients_that_meet_are_added_in_place_where_nothing_else_needs_them(
    compute: Callable[[Tensor], Tensor],
) -> None:
    _expect_the_step_of_a_real_run(compute, ("fake", "meta", "cpu"))


_CHOOSING: dict[str, Callable[[Tensor], Tensor]] = {
    "sort": lambda h: h.sort(0)[0],
    "topk": lambda h: h.topk(5, 0)[0],
    "max": lambda h: h.max(0)[0],
    "gather": lambda h: h.gather(0, torch.zeros(_SIDE, _SIDE, dtype=torch.long)),
    "cummax": lambda h: h.cummax(0)[0],
    "take": lambda h: h.take(torch.arange(9)),
    "trace": lambda h: h.trace(),
    "scatter_reduce": lambda h: h.scatter_add(0, torch.zeros(1, _SIDE, dtype=torch.long), h[:1]),
}


@pytest.mark.parametrize("compute", _CHOOSING.values(), ids=_CHOOSING)
def test_gradients_of_chosen_elements_are_written_into_zeros(compute: Callable[[Tensor], Tensor]) -> None:
    _expect_the_step_of_a_real_run(compute)


class _KeepsItsGradient(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        _kept.append(gradient * 2)
        return _kept[-1]


def test_a_gradient_that_code_of_the_model_keeps_is_not_written_over() -> None:
    _expect_the_step_of_a_real_run(lambda h: h.sin() + _KeepsItsGradient.apply(h))  # runs first, as it was called last
    assert [one.unique().tolist() for one in _kept] == [[2.0]]


class _AddsItself(torch.autograd.Function):
    """A backward pass in Python that adds out of place: nothing else refers to what it adds to."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return torch.ops.aten.add.Tensor(gradient * 2, gradient)


def test_what_code_of_the_model_adds_in_its_own_backward_pass_stays_as_it_is() -> None:
    _expect_the_step_of_a_real_run(lambda h: _AddsItself.apply(h) + h.sin())


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradients_meet_in_a_checkpoint_too(*, reentrant: bool) -> None:
    def compute(h: Tensor) -> Any:
        return checkpoint(lambda x: x.sin() * x.cos(), h, use_reentrant=reentrant, preserve_rng_state=False)

    _expect_the_step_of_a_real_run(compute)


def test_the_values_of_gradients_are_those_of_a_real_run() -> None:
    seen: list[list[float]] = []

    def compute(h: Tensor) -> Tensor:
        h.register_hook(lambda gradient: seen.append(gradient.flatten().tolist()))
        return h.sin() * h.cos() + h.gather(0, torch.zeros(_SIDE, _SIDE, dtype=torch.long)) * h.sort(0)[0]

    _expect_the_step_of_a_real_run(compute, ("cpu",))
    assert seen[0] == seen[-1]
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("compute", "mode", "said"),
    [
        (lambda h: h.prod(0), "cpu", "gradients of prod"),
        (lambda h: h.cumprod(0), "fake", "cumprod"),
        (lambda h: h.cumsum(0), "fake", ""),
    ],
)
def test_a_formula_that_depends_on_values_is_named(compute: Callable[[Tensor], Tensor], mode: str, said: str) -> None:
    trace = capture(_Weighted(compute), torch.ones(_SIDE, _SIDE), mode, backward=True)
    assert [said in note for note in trace.notes] == [True] * bool(said)


@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_memory_that_a_kernel_keeps_for_the_backward_pass_is_named_where_it_is_not_counted(mode: str) -> None:
    trace = capture(nn.LSTM(8, 8), torch.ones(3, 2, 8), mode, backward=True)
    assert any("oneDNN" in note for note in trace.notes) == (mode == "fake")
