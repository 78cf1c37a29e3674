"""Working out three blocks must give what working out all of them gives."""

import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.cost.fusion import PricedSignature, fused_traffic
from torchstone.cost.pricing import price_signature
from torchstone.cost.repeats import find_runs, over_all_blocks
from torchstone.cost.storages import Storages, find_storages
from torchstone.models import load
from torchstone.models.inputs import InputOptions
from torchstone.record.cost import Kind, Traffic
from torchstone.record.trace import Trace

LAYERS = 12


class Layer(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Stack(nn.Module):
    def __init__(self, *layers: nn.Module, all_states: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.all_states = all_states

    def forward(self, x: Tensor) -> Tensor:
        states = []
        for layer in self.layers:
            x = layer(x)
            states.append(x)
        return torch.stack(states).sum() if self.all_states else x.exp()


def traced(model: nn.Module) -> tuple[Trace, Storages]:
    trace = capture(model, (torch.zeros(2, 8),))
    return trace, find_storages(trace)


def fused(trace: Trace, storages: Storages) -> Traffic:
    results = [price_signature(signature)[1] for signature in trace.ops.signatures]
    nothing = PricedSignature(kind=Kind.UNPRICED, reads=(), writes=())
    priced = [result if isinstance(result, PricedSignature) else nothing for result in results]
    return fused_traffic(trace, priced, storages)


def test_equal_layers_are_one_run() -> None:
    trace, storages = traced(Stack(*(Layer() for _ in range(LAYERS))))

    (run,) = find_runs(trace, storages)

    assert run.blocks == LAYERS - 2  # the first reads the input, and the last has nothing after it to tell its end
    assert over_all_blocks(trace, [run], lambda short: fused(short, storages)) == fused(trace, storages)


def test_a_short_trace_has_only_some_of_the_blocks() -> None:
    trace, storages = traced(Stack(*(Layer() for _ in range(LAYERS))))
    lengths = set()

    def length_of(short: Trace) -> Traffic:
        lengths.add(len(short.ops))
        return fused(short, storages)

    (run,) = find_runs(trace, storages)
    over_all_blocks(trace, [run], length_of)

    assert lengths == {len(trace.ops) - (run.blocks - kept) * run.length for kept in (2, 3)}


def test_layers_that_are_all_looked_at_afterwards_are_no_run() -> None:
    trace, storages = traced(Stack(*(Layer() for _ in range(LAYERS)), all_states=True))

    assert find_runs(trace, storages) == []


def test_few_layers_are_no_run() -> None:
    trace, storages = traced(Stack(*(Layer() for _ in range(4))))

    assert find_runs(trace, storages) == []


def test_a_shared_weight_does_not_hide_a_run_and_changes_nothing() -> None:
    layers = [Layer() for _ in range(LAYERS)]
    for layer in layers:
        layer.up = layers[0].up
    trace, storages = traced(Stack(*layers))

    runs = find_runs(trace, storages)

    assert runs
    assert over_all_blocks(trace, runs, lambda short: fused(short, storages)) == fused(trace, storages)


ENCODERS = ("google/flan-t5-large", "google-bert/bert-large-uncased")
DECODERS = ("meta-llama/Llama-2-7b-hf", "deepseek-ai/DeepSeek-V3", "gpt2")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, InputOptions(seq_len=16)) for name in (*ENCODERS, *DECODERS)),
        *((name, InputOptions(phase="decode", cache_len=32)) for name in DECODERS),
    ],
)
def test_runs_of_real_models_move_what_all_their_layers_move(name: str, options: InputOptions) -> None:
    model, inputs = load(name, options=options)
    trace = capture(model, inputs)
    storages = find_storages(trace)

    runs = find_runs(trace, storages)

    assert runs, "the layers repeat"
    assert over_all_blocks(trace, runs, lambda short: fused(short, storages)) == fused(trace, storages)
