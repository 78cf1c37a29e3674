"""Random stacks of layers that share, keep, replace and write to things: reuse may change nothing but the time."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.record.trace import Trace

WIDTH, SEEDS = 8, 60


class Shared:
    def __init__(self) -> None:
        self.count = 0
        self.kept: list[Tensor] = []


class Layer(nn.Module):
    """Runs a program of steps, each of which takes the layer, its input and what it has so far."""

    def __init__(self, steps: tuple[str, ...], shared: Shared, inner: nn.Module | None) -> None:
        super().__init__()
        self.steps = steps
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        if inner is not None:
            self.inner = inner
        if any("shared" in step for step in steps):
            self.shared = shared

    def forward(self, x: Tensor, notes: dict[str, Any]) -> Any:
        y, results = x, []
        for step in self.steps:
            if step == "result":
                results.append(y)
            elif step == "inner":
                y = self.inner(y, notes)
                y = y[0] if isinstance(y, tuple) else y
            elif step == "note":
                notes["turn"] = notes.get("turn", 0) + 1
            elif step == "note a tensor":
                notes["found"] = y.abs()
            else:
                y = (STEPS.get(step) or MORE_STEPS[step])(self, x, y)
        return (y, results) if results else y


def count_in_shared(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    layer.shared.count += 1
    return y * 2 if layer.shared.count % 2 else y


def keep_in_shared(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    layer.shared.kept.append(y.mean(-1, keepdim=True))
    return y


def take_from_shared(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    return y + layer.shared.kept[-1] if layer.shared.kept else y


def keep_as_attribute(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    layer.last = y * 1
    return y


def count_in_layer(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    layer.calls = getattr(layer, "calls", 0) + 1
    return y if layer.calls % 2 else -y


def replace_the_buffer(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    layer.buf = y.mean((0, 1))
    return y + layer.buf


def replace_and_use_what_was_there(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    before = layer.buf
    layer.buf = before + 1
    return y + before * layer.buf


def write_to_the_buffer(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    layer.buf.copy_(y.detach().mean((0, 1)))
    return y * layer.buf.add_(1)


def view_the_buffer(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    layer.view = layer.buf[: WIDTH // 2]
    return y + torch.cat([layer.view, layer.view])


def register_a_buffer(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    layer.register_buffer("fresh", y.detach().sum((0, 1)))
    return y + layer.fresh


def delete_a_buffer(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    if hasattr(layer, "once"):
        y = y + layer.once
        del layer.once
    return y


def replace_an_attribute(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    layer.constant = layer.constant + y.detach().mean((0, 1))
    return y + layer.constant


def keep_in_a_list(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    layer.listed.append(y.mean(-1, keepdim=True))
    return y + layer.listed[0]


def replace_the_list(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    layer.listed = [y.mean(-1, keepdim=True)]
    return y


def without_gradient(_layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        gate = torch.sigmoid(y)
    return y * gate


def in_bfloat16(layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return layer.first(y).float()


def write_to_a_view(_layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    copied = y * 1
    copied.view(-1).add_(1)
    copied[:, :2].mul_(2)
    return copied


def in_a_closure(_layer: Any, _x: Tensor, y: Tensor) -> Tensor:
    double = y * 2

    def add(z: Tensor) -> Tensor:
        return z + double

    return add(add(y))


STEPS: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "first": lambda layer, _x, y: layer.first(y),
    "second": lambda layer, _x, y: layer.second(y),
    "relu": lambda _layer, _x, y: torch.relu(y),
    "relu in place": lambda _layer, x, y: torch.relu_(y.clone() if y is x else y),
    "add the input": lambda _layer, x, y: y + x,
    "write to the input": lambda _layer, x, y: (x.add_(1), y)[1],
    "view": lambda _layer, x, y: y.reshape(-1, WIDTH).view(x.shape),
    "transpose": lambda _layer, _x, y: y.transpose(0, 1).contiguous().transpose(0, 1),
    "swap halves": lambda _layer, _x, y: torch.cat(y.chunk(2, -1)[::-1], -1),
    "a constant": lambda _layer, _x, y: y * torch.tensor([2.0] * WIDTH),
    "a range": lambda _layer, _x, y: y + torch.arange(WIDTH),
    "count in shared": count_in_shared,
    "branch on shared": lambda layer, _x, y: torch.tanh(y) if layer.shared.count % 2 else y,
    "keep in shared": keep_in_shared,
    "take from shared": take_from_shared,
    "keep as attribute": keep_as_attribute,
    "use the attribute": lambda layer, _x, y: y + layer.last if hasattr(layer, "last") else y,
    "count in the layer": count_in_layer,
}
MORE_STEPS: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    step.__name__: step
    for step in (
        replace_the_buffer, replace_and_use_what_was_there, write_to_the_buffer, view_the_buffer, register_a_buffer,
        delete_a_buffer, replace_an_attribute, keep_in_a_list, replace_the_list, without_gradient, in_bfloat16,
        write_to_a_view, in_a_closure,
    )
} | {
    "forward without a call": lambda layer, _x, y: layer.first.forward(y),
    "checkpoint": lambda layer, _x, y: checkpoint(layer.second, y, use_reentrant=False),
    "generator": lambda _layer, _x, y: sum((y[place : place + 1] * place for place in range(2)), y),
    "other dtype": lambda _layer, _x, y: y.double().float(),
    "data": lambda layer, _x, y: y + layer.first.bias.data,
}  # fmt: skip
# Without data, autograd undoes these with other ops than in a real run, and says so.
WRITE_TO_VIEWS = frozenset({"write_to_a_view", "relu in place", "write to the input"})
FAIL_IN_TRAINING = frozenset({"write_to_the_buffer"})  # the buffer that was written to is needed for a gradient


class HoldingLayer(Layer):
    """A layer with more to hold."""

    def __init__(self, steps: tuple[str, ...], shared: Shared, inner: nn.Module | None) -> None:
        super().__init__(steps, shared, inner)
        self.register_buffer("buf", torch.ones(WIDTH))
        self.register_buffer("once", torch.ones(WIDTH))
        self.constant = torch.ones(WIDTH)
        self.listed: list[Tensor] = []


class RandomStack(nn.Module):
    """A stack of few kinds of layers; what is random follows from the seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        dice = random.Random(seed)  # noqa: S311 - picks cases
        names = [*STEPS, "result", "inner", "note", "note a tensor", *4 * ("first", "second", "relu", "add the input")]
        self.shared = Shared()
        programs = [tuple(dice.choices(names, k=dice.randint(2, 6))) for _ in range(dice.randint(1, 2))]
        inner = tuple(dice.choices(["first", "second", "relu", "add the input"], k=3))
        self.layers = nn.ModuleList(self._layer(dice.choice(programs), inner) for _ in range(dice.randint(3, 6)))
        if dice.random() < 0.3:
            self.layers.append(self.layers[0])
        if dice.random() < 0.2:
            self.layers[-1].first.weight = self.layers[0].first.weight  # type: ignore[union-attr]
        self.times, self.fresh_notes = dice.choice((1, 1, 2)), dice.random() < 0.5
        self.between = dice.choice(("", "count", "clear", "replace"))

    def _layer(self, steps: tuple[str, ...], inner: tuple[str, ...]) -> Layer:
        return Layer(steps, self.shared, Layer(inner, self.shared, None) if "inner" in steps else None)

    def forward(self, x: Tensor) -> Tensor:
        self.shared.count, self.shared.kept = 0, []
        notes: dict[str, Any] = {}
        results: list[Tensor] = []
        for _ in range(self.times):
            for number, layer in enumerate(self.layers):
                self._change_shared(number)
                notes = {} if self.fresh_notes else notes
                given = layer(x, notes)
                x, more = given if isinstance(given, tuple) else (given, [])
                results += more
                x = torch.sigmoid(x) if notes.get("turn", 0) % 2 else x
                x = x + notes.pop("found") if "found" in notes else x
        return sum([*results, *self.shared.kept], x)

    def _change_shared(self, number: int) -> None:
        if self.between == "count" and number % 3 == 2:
            self.shared.count = number
        elif self.between == "clear" and number == 2:
            self.shared.kept.clear()
        elif self.between == "replace" and number == 2:
            self.shared.kept = []


class HoldingStack(RandomStack):
    """A stack whose layers replace, write to and view what they hold, some of which is held by several."""

    def __init__(self, seed: int, *, training: bool) -> None:
        super().__init__(seed)
        dice = random.Random(seed)  # noqa: S311 - picks cases
        few = [*dice.sample([*STEPS], 4), *dice.sample([*MORE_STEPS], dice.randint(2, 8)), "first", "relu"]
        names = [name for name in few if not training or name not in WRITE_TO_VIEWS | FAIL_IN_TRAINING]
        programs = [tuple(dice.choices(names, k=dice.randint(2, 6))) for _ in range(dice.randint(1, 2))]
        layers = [HoldingLayer(dice.choice(programs), self.shared, None) for _ in range(dice.randint(3, 6))]
        if dice.random() < 0.3:
            layers[-1].buf = layers[0].buf
        if dice.random() < 0.3:
            layers[1].constant = layers[0].buf  # type: ignore[assignment]
        if dice.random() < 0.3:
            layers[1].register_buffer("part", layers[0].buf[:4])  # type: ignore[index]
        if dice.random() < 0.3:
            layers.append(layers[0])
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        result = super().forward(x)
        self.shared.kept = []
        return result


def described(trace: Trace) -> list[object]:
    """Everything that two traces of one model should have in common, copies written out."""
    whole = trace.written_out()
    ops, calls = whole.ops, whole.module_calls
    results = [
        (
            ops.signatures[number].op,
            [(spec.shape, spec.stride, spec.dtype) for spec in ops.signatures[number].output_specs],
        )
        for number in ops.signature_of
    ]
    peak = trace.eager_memory and trace.eager_memory.peak_bytes
    return [
        results, ops.inputs, ops.outputs, ops.writes, ops.module_calls, calls.modules, calls.parents, calls.inputs,
        calls.outputs, calls.first_ops, calls.end_ops, trace.failure, peak,
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(SEEDS))
def test_reuse_changes_nothing(seed: int) -> None:
    x = torch.rand(3, 40, WIDTH)
    trace, without, real = (
        capture(RandomStack(seed).eval(), x, mode, reuse=reuse)
        for mode, reuse in (("fake", True), ("fake", False), ("cpu", True))
    )

    assert trace.failure is None
    assert described(trace) == described(without)
    assert described(trace) == described(real)
    assert price(trace).totals == price(real).totals
    assert price(trace).peak.total_bytes == price(real).peak.total_bytes


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_layers_that_change_what_they_hold_have_one_trace_and_are_as_they_were(seed: int, *, training: bool) -> None:
    x = torch.rand(3, 40, WIDTH, requires_grad=training)
    traces = []
    for mode, reuse in (("fake", True), ("fake", False), ("cpu", True)):
        model = HoldingStack(seed, training=training).train(training)
        held = {name: (tensor, tensor.detach().clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
        identities = {name: id(tensor) for name, (tensor, _) in held.items()}
        values = {name: value for name, (_, value) in held.items()}
        del held  # whoever holds a tensor keeps it alive
        traces.append(capture(model, x, mode, reuse=reuse, backward=training))
        after = model.state_dict(keep_vars=True)
        assert {name: id(tensor) for name, tensor in after.items()} == identities
        assert all(torch.equal(values[name], tensor) for name, tensor in after.items())
        assert all(not layer.listed for layer in model.layers)

    trace, without, real = traces
    assert trace.failure is None
    assert described(trace) == described(without)
    assert described(trace) == described(real)
    assert price(trace).totals == price(real).totals
    assert price(trace).peak.total_bytes == price(real).peak.total_bytes


def test_most_of_the_stacks_reuse_layers() -> None:
    traces = [capture(RandomStack(seed).eval(), torch.rand(3, 40, WIDTH), "fake") for seed in range(SEEDS)]

    assert sum(trace.provenance.reused_ops > 0 for trace in traces) > SEEDS // 4
