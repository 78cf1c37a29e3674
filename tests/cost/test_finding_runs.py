import pytest
import torch
from torch import nn

from tests.cost.stacks import (
    Layer,
    LooksBack,
    Pointwise,
    Stack,
    WithConstant,
    stack_of,
    traced,
)
from torchstone.capture import capture
from torchstone.cost.finding_runs import find_repeats
from torchstone.cost.repeats import Run
from torchstone.cost.storages import find_ends
from torchstone.record.trace import Trace

LAYERS = 12


def runs_of(trace: Trace) -> tuple[Run, ...]:
    return find_repeats(trace, find_ends(trace)).runs


def test_equal_layers_are_one_run() -> None:
    (run,) = runs_of(stack_of(Layer, LAYERS))

    assert run.blocks == LAYERS - 1  # the first is given a tensor without gradient
    assert len(run.own) == 4  # two weights, two biases


@pytest.mark.parametrize("kind", [Pointwise, WithConstant])
def test_layers_of_many_kinds_are_runs(kind: type[nn.Module]) -> None:
    assert len(runs_of(stack_of(kind, LAYERS))) == 1


def test_modules_without_ops_are_no_run() -> None:
    assert runs_of(traced(nn.Sequential(*(nn.Identity() for _ in range(LAYERS)), nn.ReLU()))) == ()


def test_two_stacks_are_two_runs() -> None:
    first, second = (Stack(*(kind() for _ in range(LAYERS))) for kind in (Layer, WithConstant))

    first_run, second_run = runs_of(traced(nn.Sequential(first, second)))

    assert first_run.end <= second_run.start
    assert first_run.length != second_run.length


def test_few_layers_are_no_run() -> None:
    assert runs_of(stack_of(Layer, 4)) == ()


def test_layers_that_take_turns_are_one_run() -> None:
    (run,) = runs_of(traced(Stack(*(kind() for _ in range(LAYERS) for kind in (Layer, WithConstant)))))

    assert run.blocks in (LAYERS - 1, LAYERS)
    assert len(run.own) == 9  # four weights and biases each, and the constant


def test_layers_that_were_not_reused_are_no_run() -> None:
    model = Stack(*(Layer() for _ in range(LAYERS)))

    assert runs_of(capture(model, (torch.ones(2, 8),), reuse=False)) == ()


def test_layers_that_are_all_looked_at_afterwards_are_no_run() -> None:
    assert runs_of(stack_of(Layer, LAYERS, gives="sum of all")) == ()


def test_layers_that_look_further_back_are_no_run() -> None:
    assert runs_of(stack_of(LooksBack, LAYERS)) == ()


def test_layers_that_the_model_gives_back_are_a_run() -> None:
    assert len(runs_of(stack_of(Layer, LAYERS, gives="all states"))) == 1


def test_a_weight_that_all_layers_share_is_nobodys_own() -> None:
    layers = [Layer() for _ in range(LAYERS)]
    for layer in layers:
        layer.up.weight = layers[0].up.weight

    (run,) = runs_of(traced(Stack(*layers)))

    assert len(run.own) == 3  # two biases, and the weight that is not shared


def test_a_weight_that_is_used_again_outside_is_no_run() -> None:
    layers = [Layer() for _ in range(LAYERS)]
    tail = nn.Linear(8, 16)
    tail.weight = layers[5].up.weight

    assert runs_of(traced(nn.Sequential(Stack(*layers), tail))) == ()


def test_weights_of_another_size_end_a_run() -> None:
    layers = [Layer() for _ in range(2 * LAYERS)]
    layers[LAYERS].up, layers[LAYERS].down = nn.Linear(8, 4), nn.Linear(4, 8)

    (run,) = runs_of(traced(Stack(*layers)))

    assert run.blocks in (LAYERS - 1, LAYERS)


def test_a_training_step_has_no_runs() -> None:
    model = Stack(*(Layer() for _ in range(LAYERS)))

    assert runs_of(capture(model, (torch.ones(2, 8),), backward=True)) == ()
