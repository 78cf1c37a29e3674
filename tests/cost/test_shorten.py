"""Pricing a trace with its repeats must give what pricing it with every copy written out gives."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.cost.stacks import (
    KINDS,
    Layer,
    Nested,
    Pointwise,
    Stack,
    Tabled,
    Unweighted,
    WithConstant,
    Woven,
    Writing,
    stack_of,
    traced,
)
from torchstone.capture import capture
from torchstone.cost import price_trace
from torchstone.cost.fusion import PricedSignature, fused_traffic
from torchstone.cost.shorten import LAST, MIDDLE, Change, Run, Short, Stretch, shorten
from torchstone.cost.storages import storages_of
from torchstone.models import load
from torchstone.models.inputs import InputOptions
from torchstone.record.cost import CostTable
from torchstone.record.trace import Trace


def priced_in_full(trace: Trace) -> CostTable:
    return price_trace.price(trace.written_out())


def test_a_short_trace_has_three_blocks() -> None:
    trace = stack_of(Layer, 12)

    short = shorten(trace)

    (run,) = short.runs
    assert len(short.trace.ops) == len(trace.ops) - run.left_out * run.ops.step
    assert short.trace.ops.signature_of[-1] == trace.ops.signature_of[-1]
    assert run.left_out >= 12 - 5


def test_a_trace_without_repeats_stays_as_it_is() -> None:
    trace = stack_of(Layer, 3)

    assert shorten(trace).trace is trace


@pytest.mark.parametrize("gives", ["last", "all states", "sum of all"])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_every_kind_cost_what_all_of_them_cost(kind: type[nn.Module], gives: str) -> None:
    trace = stack_of(kind, 12, gives=gives)

    assert price_trace.price(trace) == priced_in_full(trace)


@pytest.mark.parametrize("kind", [Layer, Pointwise, WithConstant, Writing, Tabled])
def test_three_layers_do_to_tell_what_kernels_move(kind: type[nn.Module]) -> None:
    trace = stack_of(kind, 12)
    short = shorten(trace)
    priced = [found for _, found in map(price_trace.price_signature, trace.ops.signatures)]
    known = [one for one in priced if isinstance(one, PricedSignature)]

    assert short.runs
    assert len(known) == len(priced)
    assert fused_traffic(short, known, storages_of(short)) is not None


@pytest.mark.parametrize("second", KINDS)
def test_layers_that_take_turns_cost_what_all_of_them_cost(second: type[nn.Module]) -> None:
    trace = traced(Stack(*(kind() for _ in range(10) for kind in (Layer, second))))

    assert price_trace.price(trace) == priced_in_full(trace)


def test_equal_stacks_that_follow_each_other_cost_what_all_of_their_layers_cost() -> None:
    layers = [Layer() for _ in range(30)]
    for number, layer in enumerate(layers):
        layer.part = number // 10  # equal ops, and yet no copies of each other
    trace = traced(Stack(*layers))

    assert len(shorten(trace).runs) == 3
    assert price_trace.price(trace) == priced_in_full(trace)


@pytest.mark.parametrize("kept", range(12))
def test_a_state_that_is_given_back_beside_the_last_one_is_held(kept: int) -> None:
    class GivesOne(Stack):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            states = super().forward(x)
            return states[kept], states[-1]

    trace = traced(GivesOne(*(Layer() for _ in range(12)), gives="all states"))

    assert price_trace.price(trace) == priced_in_full(trace)


@pytest.mark.parametrize("gives", ["last", "all states"])
@pytest.mark.parametrize("kind", KINDS)
def test_ops_between_layers_cost_what_all_of_them_cost(kind: type[nn.Module], gives: str) -> None:
    trace = traced(Woven(*(kind() for _ in range(12)), gives=gives))

    assert price_trace.price(trace) == priced_in_full(trace)


class Named(Stack):
    """Layers that have names instead of numbers, so that each is listed for itself."""

    def __init__(self, *layers: nn.Module, gives: str) -> None:
        super().__init__(gives=gives)
        for number, layer in enumerate(layers):
            self.add_module(f"layer{number}", layer)
        self.__dict__["layers"] = layers
        del self._modules["layers"]


@pytest.mark.parametrize("gives", ["last", "all states"])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_are_listed_one_by_one_are_listed_under_their_names(kind: type[nn.Module], gives: str) -> None:
    trace = traced(Named(*(kind() for _ in range(12)), gives=gives))

    table = price_trace.price(trace)

    assert table == priced_in_full(trace)
    assert any("layer11" in row.name + row.module for row in table.peak.alive) or kind is Unweighted


@pytest.mark.parametrize("kind", [Layer, Pointwise, Nested])
def test_a_sequence_of_layers_is_shortened(kind: type[nn.Module]) -> None:
    trace = traced(nn.Sequential(*(kind() for _ in range(12))))

    assert shorten(trace).runs
    assert price_trace.price(trace) == priced_in_full(trace)


def test_a_training_step_has_no_repeats() -> None:
    trace = capture(Stack(*(Layer() for _ in range(12))), (torch.ones(2, 8),), backward=True)

    assert trace.repeats == ()
    assert shorten(trace).trace is trace
    assert price_trace.price(trace) == priced_in_full(trace)


class Twice(nn.Module):
    """Runs some of its layers, and then every second one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.layers = nn.ModuleList(Unweighted() for _ in range(30))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers[10:21]:
            x = layer(x)
        x = torch.relu(x).view(4, 4)  # other shapes: copies of another call
        for layer in self.layers[::2]:
            x = layer(x)
        return x


def test_layers_that_run_once_and_twice_cost_what_all_of_them_cost() -> None:
    trace = traced(Twice())

    assert len(shorten(trace).runs) == 2
    assert price_trace.price(trace) == priced_in_full(trace)


@given(
    kinds=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 12)), min_size=1, max_size=3),
    before=st.integers(0, 12),
    shared=st.sampled_from([None, 1, 2, 5]),
)
@settings(max_examples=25)
def test_mixed_stacks_cost_what_all_of_their_layers_cost(
    kinds: list[tuple[type[nn.Module], int]], before: int, shared: int | None
) -> None:
    layers = [kind() for kind, times in kinds for _ in range(times)]
    for number in range(shared or len(layers), len(layers), shared or 1):
        if type(layers[number]) is type(layers[0]):
            layers[number] = layers[0]
    trace = traced(Stack(*layers, before=before))

    assert price_trace.price(trace) == priced_in_full(trace)


class Looped(nn.Module):
    """Runs stretches of its layers, one after another; gives the last state, and perhaps another."""

    def __init__(self, layers: list[nn.Module], loops: list[slice], also: int | None) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.layers = nn.ModuleList(layers)
        self.loops = loops
        self.also = also

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        states = [self.first(x)]
        for loop in self.loops:
            states.append(states[-1].reshape(2, 8) + 1)
            for layer in self.layers[loop]:
                states.append(layer(states[-1], *states[layer.looks_at]))  # type: ignore[index]
        return (states[-1],) if self.also is None else (states[-1], states[self.also % len(states)])


slices = st.builds(slice, st.integers(0, 6), st.integers(12, 16), st.sampled_from([1, 1, 2]))


@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=2),
    loops=st.lists(slices, min_size=1, max_size=3),
    also=st.one_of(st.none(), st.integers(0, 60)),
)
@settings(max_examples=40)
def test_loops_over_layers_cost_what_all_of_them_cost(
    kinds: list[type[nn.Module]], loops: list[slice], also: int | None
) -> None:
    layers = [kinds[number % len(kinds)]() for number in range(16)]
    model = Looped(layers, loops, also)
    trace = traced(model)
    everything_run = capture(model, (torch.ones(2, 8),), reuse=False)

    assert (trace.ops, trace.tensors) == (everything_run.ops, everything_run.tensors)
    assert price_trace.price(trace) == priced_in_full(trace)


ENCODERS = ("google/flan-t5-large", "google-bert/bert-large-uncased")
DECODERS = ("meta-llama/Llama-2-7b-hf", "deepseek-ai/DeepSeek-V3", "gpt2")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, InputOptions(seq_len=16)) for name in (*ENCODERS, *DECODERS)),
        *((name, InputOptions(phase="decode", cache_len=32)) for name in DECODERS),
    ],
)
def test_real_models_cost_what_all_of_their_layers_cost(name: str, options: InputOptions) -> None:
    model, inputs = load(name, options=options)
    trace = capture(model, inputs)

    assert shorten(trace).runs, "the layers repeat"
    assert price_trace.price(trace) == priced_in_full(trace)


def short_of(*runs: Run) -> Short:
    some = shorten(stack_of(Layer, 3))
    return Short(trace=some.trace, ends=some.ends, runs=runs)


def run(start: int, *, left_out: int = 3, own: tuple[tuple[int, int], ...] = ()) -> Run:
    """Blocks of two op calls, each of which makes two tensors in two storages."""
    rows, numbers = Stretch(start=start, step=2), Stretch(start=100 + start, step=2)
    return Run(ops=rows, calls=rows, tensors=numbers, storages=numbers, left_out=left_out, module_step=1, own=own)


def test_each_block_has_its_own_rows() -> None:
    assert [list(run(1).ops.of(block)) for block in (0, MIDDLE, LAST)] == [[1, 2], [3, 4], [5, 6]]


def test_the_block_in_the_middle_stands_for_those_left_out() -> None:
    short = short_of(run(1))

    assert short.times_of_rows()[:8] == [1, 1, 1, 4, 4, 1, 1, 1]


def test_memory_of_blocks_left_out_is_named() -> None:
    short = short_of(run(0, own=((15, 5), (102, 0))))

    assert short.storages_left_out() == {20, 25, 30}  # the first has 10, the middle 15, the last 35
    assert short.times_of_storages() == {15: 4, 102: 4, 103: 4}


def test_what_each_block_keeps_adds_up() -> None:
    held = [0, 10, 11, 20, 21, 30, 31, 5]  # one call, three blocks, one call

    spread = short_of(run(1)).spread(held, [Change(kept=100)])

    assert spread == [0, 10, 11, 20, 21, 120, 121, 220, 221, 320, 321, 330, 331, 305]


def test_what_each_block_frees_is_held_before() -> None:
    held = [0, 10, 11, 20, 21, 30, 31, 5]

    spread = short_of(run(1)).spread(held, [Change(freed=100)])

    assert spread == [300, 310, 311, 320, 321, 220, 221, 120, 121, 20, 21, 30, 31, 5]


def test_every_call_of_the_whole_trace_has_its_place() -> None:
    short = short_of(run(1), run(7))

    places = [short.moment(index) for index in range(13 + 13)]

    assert [place.row for place in places[:14]] == [0, 1, 2, *[3, 4] * 4, 5, 6, 7]
    assert [place.before[0] for place in places[:14]] == [0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 3]
    assert [place.row for place in places[13:]] == [7, 8, *[9, 10] * 4, 11, 12, 13]
    assert {place.before[1] for place in places[:16]} == {0}


def test_without_runs_nothing_changes() -> None:
    short = short_of()

    assert short.spread([1, 2], []) == [1, 2]
    assert set(short.times_of_rows()) == {1}
    assert short.moment(-1).row == -1


class _Leaves(Stack):
    """Holds a tensor after its run that it did not hold before, as Qwen2-VL holds the offsets of its positions."""

    offsets: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        given = super().forward(x)
        assert isinstance(given, Tensor)
        self.offsets = given + 1
        return given


def test_what_a_module_holds_after_the_run_is_numbered_as_in_the_short_trace() -> None:
    trace = traced(_Leaves(*(Layer() for _ in range(12))))
    short = shorten(trace)
    assert short.runs
    assert trace.recorded_tensors.left is not None
    (number,), (whole,) = (short.trace.recorded_tensors.left or {}).values(), trace.recorded_tensors.left.values()
    assert number < len(short.trace.tensors) <= whole
    assert short.trace.tensors[number].spec == trace.tensors[whole].spec
    assert price_trace.price(trace).totals == priced_in_full(trace).totals
