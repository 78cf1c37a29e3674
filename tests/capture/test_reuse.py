import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

from tests.capture.nets import Attention, CachedStack, CacheObject, Feed, Numbered, PlainObject, Stack, cache
from torchstone.capture import capture
from torchstone.capture import reuse as reuse_module
from torchstone.record.trace import Trace


@pytest.fixture(autouse=True)
def _compare_single_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single layers of torch are compared, too, as they are where there are very many: small models show more."""
    monkeypatch.setattr(reuse_module, "_VERY_MANY", 1)


def captured(model: nn.Module, inputs: Any, *, reuse: bool) -> Trace:
    """On meta tensors, where floating-point inputs have no values and every layer sees the same kind of tensor."""
    return capture(model, inputs, "meta", reuse=reuse)


def body(trace: Trace) -> Any:
    return (trace.modules, trace.tensors, trace.ops, trace.module_calls, trace.failure)


def reused_and_equal(model: nn.Module, inputs: Any) -> int:
    """Capture with and without reuse, compare in full, and say how many op calls were taken over."""
    with_reuse, without = captured(model, inputs, reuse=True), captured(model, inputs, reuse=False)
    assert body(with_reuse) == body(without)
    assert without.provenance.reused_ops == 0
    return with_reuse.provenance.reused_ops


class WritesState(nn.Module):
    """Keeps a state that it makes, in a dictionary of its entry, and writes over, as Mamba does."""

    def __init__(self, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor, past: Any) -> Tensor:
        states = past.entries[self.layer_idx].states
        if states[0] is None:
            states[0] = torch.zeros(x.shape)
        states[0].copy_(self.linear(x))
        return x + states[0]


class WritesStates(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(WritesState(number) for number in range(layers))

    def forward(self, x: Tensor, past: Any) -> Any:
        for layer in self.layers:
            x = layer(x, past)
        return x, past


@pytest.mark.parametrize("mode", ["fake", "meta"])
def test_layers_that_write_over_a_state_of_their_own_are_reused(mode: str) -> None:
    def captured_anew(*, reuse: bool) -> Trace:
        past = CacheObject(entries=[PlainObject(states={0: None}) for _ in range(6)])
        return capture(WritesStates(6), {"x": x, "past": past}, mode, reuse=reuse)

    with_reuse, without = captured_anew(reuse=True), captured_anew(reuse=False)

    assert body(with_reuse) == body(without)
    assert with_reuse.failure is None
    assert sum(repeat.copies for repeat in with_reuse.repeats) >= 3


x = torch.zeros(2, 3, 8)
SHIFT = torch.ones(8)
LINEAR_OPS = 4  # view, t, addmm, view
FEED_OPS = 9  # view, t, addmm, view, leaky_relu, view, t, addmm, view


def test_equal_layers_are_run_once() -> None:
    assert reused_and_equal(Stack(*(Feed() for _ in range(5))), x) == 4 * FEED_OPS


def test_layers_with_another_attribute_are_run() -> None:
    assert reused_and_equal(Stack(Feed(), Feed(slope=0.1)), x) < FEED_OPS


class Activated(nn.Module):
    """Holds its activation as a function with settings, as many models do."""

    def __init__(self, slope: float = 0.5, *, own: bool = False) -> None:
        super().__init__()
        self.feed = nn.Linear(8, 8)
        self.activation = self.leaky if own else partial(nn.functional.leaky_relu, negative_slope=slope)

    def leaky(self, x: Tensor) -> Tensor:
        return nn.functional.leaky_relu(self.feed(x), 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.feed(x))


def test_layers_that_hold_equal_functions_are_run_once() -> None:
    assert reused_and_equal(Stack(*(Activated() for _ in range(3))), x) == 2 * (LINEAR_OPS + 1)


def test_layers_that_hold_a_method_of_their_own_are_run_once() -> None:
    layers = [Activated(own=True) for _ in range(3)]

    assert reused_and_equal(Stack(*layers), x) == LINEAR_OPS + 2 * (2 * LINEAR_OPS + 1)


def test_layers_that_hold_a_function_with_other_settings_are_run() -> None:
    model = Stack(Activated(), Activated(slope=0.1))

    assert reused_and_equal(model, x) == LINEAR_OPS


def test_layers_that_hold_a_method_of_another_are_run() -> None:
    first, second = Activated(own=True), Activated(own=True)
    second.activation = first.leaky

    assert reused_and_equal(Stack(first, second), x) == 3 * LINEAR_OPS


def test_layers_of_another_width_are_run() -> None:
    model = Stack(Feed(8), nn.Linear(8, 24), Feed(24))

    assert reused_and_equal(model, x) == 0


def test_layers_with_other_strides_going_in_are_run() -> None:
    class Turned(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.transpose(0, 1)

    model = Stack(nn.Linear(8, 8), Turned(), nn.Linear(8, 8))

    assert reused_and_equal(model, torch.zeros(3, 3, 8)) == 0


def test_a_module_with_no_equal_is_taken_over_from_its_third_call_on() -> None:
    class Often(nn.Module):
        def __init__(self, calls: int) -> None:
            super().__init__()
            self.feed = Feed()
            self.calls = calls

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(self.calls):
                x = self.feed(x)
            return x

    assert reused_and_equal(Often(4), x) - reused_and_equal(Often(3), x) == FEED_OPS


def test_a_module_that_hangs_at_two_places_is_run_each_time() -> None:
    feed = Feed()

    assert reused_and_equal(Stack(feed, feed), x) < FEED_OPS


def test_layers_that_do_not_look_at_their_number_are_run_once() -> None:
    assert reused_and_equal(Stack(*(Numbered(n) for n in range(5))), x) == 4 * 4


def test_layers_that_look_at_their_number_are_run() -> None:
    model = Stack(*(Numbered(n, looks=True) for n in range(5)))

    reused_and_equal(model, x)

    assert sum(call.op == "aten.add.Tensor" for call in captured(model, x, reuse=True).ops) == 1


@pytest.mark.parametrize("filled", [False, True])
def test_layers_that_share_a_cache_see_equal_states_but_for_the_first_and_the_last(filled: bool) -> None:  # noqa: FBT001
    past = cache(6, keys=torch.zeros(2, 4, 8) if filled else None)

    reused = reused_and_equal(CachedStack(6), {"x": x, "past": past})

    first_middle_last = 3
    per_layer = 7 if filled else 6  # view, t, addmm, view, (cat,) sum, add
    assert reused >= (6 - first_middle_last) * per_layer
    assert past.entries[0].length == (4 if filled else 0), "the caller's cache is left as it was"


def test_entries_of_a_cache_are_filled_as_if_every_layer_had_run() -> None:
    trace = captured(CachedStack(6), {"x": x, "past": cache(6)}, reuse=True)

    outputs = trace.module_calls.outputs[0]
    assert len(set(outputs)) == 7, "the result and one tensor for each of six layers"


def test_a_layer_that_reads_a_value_back_is_run() -> None:
    class Reads(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x * 2 if mask.any() else x

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Reads(), Reads()

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.two(self.one(x, mask), mask)

    assert reused_and_equal(Net(), (x, torch.ones(3, dtype=torch.bool))) == 0


def test_a_layer_with_a_hook_is_run() -> None:
    seen = []
    model = Stack(Feed(), Feed())
    model.layers[1].register_forward_hook(lambda *_: seen.append(1))

    captured(model, x, reuse=True)

    assert seen == [1]


def test_a_layer_that_changes_itself_is_run_again() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.calls

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.counts = Counts()

        def forward(self, x: Tensor) -> Tensor:
            return self.counts(self.counts(x))

    model = Twice()

    assert reused_and_equal(model, x) == 0
    assert model.counts.calls == 0


def test_a_layer_that_throws_dice_is_run() -> None:
    class Dice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if random.random() < 0.5 else x * 2  # noqa: S311 - the point of it

    random.seed(3)
    state = random.getstate()
    model = Stack(*(Dice() for _ in range(8))).train()

    kinds = {call.op for call in captured(model, x, reuse=True).ops}

    assert kinds == {"aten.add.Tensor", "aten.mul.Tensor"}
    assert random.getstate() == state


def test_a_layer_that_writes_to_something_shared_is_run() -> None:
    class Writes(nn.Module):
        def __init__(self, log: PlainObject) -> None:
            super().__init__()
            self.log = log
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            x = self.linear(x)
            self.log.__dict__["last"] = x
            return x + SHIFT

    log = PlainObject(last=None)

    reused_and_equal(Stack(Writes(log), Writes(log)), x)


def test_a_global_tensor_keeps_its_number() -> None:
    table = torch.zeros(1 << 23)  # large: not one of the small tensors whose values are kept

    class Looks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + table[:8]

    assert reused_and_equal(Stack(Looks(), Looks()), x) == 0


def test_inputs_that_share_memory_are_not_taken_for_ones_that_do_not() -> None:
    class Adds(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a.mul_(2) + b

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Adds(), Adds()

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.one(a, b) + self.two(a, a)

    large = torch.zeros(1 << 23)
    reused_and_equal(Net(), (large, large.clone()))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: (x, [x + 1]),
        lambda x: {"x": x, "none": None},
        lambda x: (x, 3, "text"),
    ],
)
def test_nested_results_are_given_again_in_their_own_shape(wrap: Callable[[Tensor], Any]) -> None:
    class Wraps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Any:
            return wrap(self.linear(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Wraps() for _ in range(3))

        def forward(self, x: Tensor) -> Any:
            results = [layer(x) for layer in self.layers]
            assert type(results[2]) is type(results[0])
            return results

    assert reused_and_equal(Net(), x) > 0


def test_a_failure_in_a_layer_is_found_with_reuse_as_without() -> None:
    model = Stack(Feed(), Feed(), nn.Linear(9, 9), Feed())

    trace = captured(model, x, reuse=True)

    assert trace.failure is not None
    assert trace.failure.module == "layers.2"
    assert body(trace) == body(captured(model, x, reuse=False))


def test_attention_layers_are_run_once() -> None:
    model, inputs = Stack(*(Attention() for _ in range(4))), torch.zeros(1, 2, 4, 8)

    with_reuse = capture(model, inputs, "fake")

    assert body(with_reuse) == body(capture(model, inputs, "fake", reuse=False))
    assert with_reuse.provenance.reused_ops == 2 * 5, (
        "the first layer sees the values of the input, the second does not"
    )


def test_time_spent_on_repetition_is_not_in_the_record() -> None:
    trace = captured(Stack(Feed(), Feed()), x, reuse=True)

    assert msgspec.json.encode(trace.ops) == msgspec.json.encode(captured(Stack(Feed(), Feed()), x, reuse=False).ops)


def reasons(model: nn.Module, inputs: Any = x) -> tuple[str, ...]:
    return captured(model, inputs, reuse=True).notes


def test_layers_that_are_reused_need_no_note() -> None:
    assert reasons(Stack(*(Feed() for _ in range(5)))) == ()


def test_hooks_that_switch_reuse_off_are_noted_by_class() -> None:
    model = Stack(*(Feed() for _ in range(5)))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda *_: None)

    (note,) = reasons(model)

    assert note == "reuse is off for 15 modules: hooks (Linear x 10)"


def test_values_that_are_read_back_are_noted() -> None:
    class Reads(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x * 2 if mask.any() else x

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Reads() for _ in range(4))

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x, mask)
            return x

    assert reasons(Net(), (x, torch.ones(3, dtype=torch.bool))) == (
        "reuse is off for 4 modules: values read back from tensors (Reads x 4)",
    )


def test_one_module_alone_is_not_worth_a_note() -> None:
    model = Stack(*(Feed() for _ in range(5)))
    next(model.children()).register_forward_hook(lambda *_: None)

    assert reasons(model) == ()


def test_single_layers_run_unless_there_are_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    few = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)])
    monkeypatch.setattr(reuse_module, "_VERY_MANY", 7)
    assert reused_and_equal(few, torch.zeros(2, 8)) == 0

    monkeypatch.setattr(reuse_module, "_VERY_MANY", 6)
    assert reused_and_equal(few, torch.zeros(2, 8)) > 0
