"""Copies of module calls become few repeats, and those give the trace of a capture without reuse."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.cost.stacks import KINDS, Layer, LooksBack, Nested, Stack, WithConstant, Woven
from torchstone.capture import capture
from torchstone.record.trace import Trace

LAYERS = 12
X = torch.ones(2, 8)


def captured(model: nn.Module) -> Trace:
    """The trace with repeats, after a look at whether it is the one without."""
    trace, run = (capture(model, (X,), reuse=reuse) for reuse in (True, False))
    assert trace.failure is None, trace.failure
    assert (trace.modules, trace.tensors) == (run.modules, run.tensors)
    assert (trace.ops, trace.module_calls) == (run.ops, run.module_calls)
    assert trace.size.op == len(run.ops)
    assert trace.provenance.reused_ops <= trace.size.op - len(trace.recorded_ops)
    return trace


def largest(trace: Trace) -> int:
    """How many copies one repeat stands for at most."""
    return max((repeat.copies for repeat in trace.repeats), default=0)


def test_equal_layers_are_one_repeat_and_add_no_rows() -> None:
    few, many = (captured(Stack(*(Layer() for _ in range(layers)))) for layers in (LAYERS, 2 * LAYERS))

    assert largest(few) == LAYERS - 2  # the first is given a tensor without gradient, the second ran
    assert largest(many) == 2 * LAYERS - 2
    assert few.recorded_ops.signature_of == many.recorded_ops.signature_of


def test_layers_that_take_turns_are_one_repeat() -> None:
    trace = captured(Stack(*(kind() for _ in range(LAYERS) for kind in (Layer, WithConstant))))

    assert largest(trace) == LAYERS - 2


def test_ops_between_layers_are_part_of_the_repeat() -> None:
    trace = captured(Woven(*(Layer() for _ in range(LAYERS))))

    assert largest(trace) == LAYERS - 3  # after the last one comes another op
    assert len(trace.recorded_ops) < len(trace.ops) / 3


def test_layers_that_look_further_back_are_a_repeat() -> None:
    assert largest(captured(Stack(*(LooksBack() for _ in range(LAYERS))))) == LAYERS - 3


def test_layers_in_layers_are_repeats_in_a_repeat() -> None:
    trace = captured(Stack(*(Nested(6) for _ in range(LAYERS))))

    assert largest(trace) >= LAYERS - 2
    assert len(trace.recorded_ops) < len(trace.ops) / 10


def test_layers_in_any_order_are_copies_one_by_one() -> None:
    class Shuffled(Stack):
        def forward(self, x: Tensor) -> Tensor:
            order = list(self.layers)
            random.Random(0).shuffle(order)  # noqa: S311 - any order will do
            for layer in order:
                x = layer(x)
            return x

    trace = captured(Shuffled(*(Layer() for _ in range(LAYERS))))

    assert largest(trace) < LAYERS // 2
    assert len(trace.recorded_ops) < len(trace.ops) / 3


def test_what_each_second_layer_shares_does_not_stand_for_all() -> None:
    layers = [Layer() for _ in range(LAYERS)]
    for layer in layers[::2]:
        layer.up.weight = layers[0].up.weight

    assert largest(captured(Stack(*layers))) == LAYERS // 2 - 2


@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_every_kind_come_back(kind: type[nn.Module]) -> None:
    captured(Woven(*(kind() for _ in range(LAYERS)), gives="all states"))


@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    layers=st.integers(1, 14),
    ties=st.lists(st.tuples(st.integers(0, 13), st.integers(0, 13)), max_size=3),
    order=st.one_of(st.none(), st.permutations(range(14))),
    woven=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_order_of_any_layers_comes_back(
    kinds: list[type[nn.Module]],
    layers: int,
    ties: list[tuple[int, int]],
    order: list[int] | None,
    woven: bool,  # noqa: FBT001
) -> None:
    built = [kinds[number % len(kinds)]() for number in range(layers)]
    for one, other in ties:
        first, second = built[one % layers], built[other % layers]
        if isinstance(first, Layer) and isinstance(second, Layer):
            first.up.weight = second.up.weight
    called = [built[number] for number in order if number < layers] if order is not None else built
    captured((Woven if woven else Stack)(*called))
