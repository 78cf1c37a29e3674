"""Where the error begins and how it grows, from verdicts with known errors."""

import pytest
import torch
from torch import nn

from tests.report.test_comparison_text import errors
from torchstone.record.reference import Role, Status, TensorVerdict
from torchstone.reference import compare
from torchstone.reference.make import Request, make_golden
from torchstone.reference.spread import layer_errors, spread_words


def tensor(module: str, role: Role, error: float | None, *, wrong: bool = False) -> TensorVerdict:
    part = "inputs/x" if role is Role.MODULE_INPUT else "outputs"
    return TensorVerdict(
        name=f"modules/{module}/{part}",
        role=role,
        module=module,
        status=Status.NOT_GIVEN if error is None else Status.WRONG_VALUES if wrong else Status.PASSED,
        shape=(2,),
        dtype="float32",
        errors=None if error is None else errors(relative_l2=error),
    )


def stack(*pairs: tuple[float | None, float | None], wrong_from: int = 99) -> list[TensorVerdict]:
    """Layers with the error of their inputs and of their outputs."""
    verdicts = []
    for number, (inherited, error) in enumerate(pairs):
        verdicts.append(tensor(f"layers.{number}", Role.MODULE_INPUT, inherited))
        verdicts.append(tensor(f"layers.{number}", Role.MODULE_OUTPUT, error, wrong=number >= wrong_from))
    return verdicts


def test_each_layer_has_what_it_inherits_and_what_it_adds() -> None:
    found = layer_errors(stack((0.0, 0.1), (0.1, 0.4), (None, 0.5), (0.5, None)))

    assert [(one.module, one.error, one.inherited, one.added) for one in found] == [
        ("layers.0", 0.1, 0.0, 0.1),
        ("layers.1", 0.4, 0.1, pytest.approx(0.3)),
        ("layers.2", 0.5, None, None),
    ]


def test_the_first_layer_beyond_tolerance_and_the_growth_after_it_are_named() -> None:
    steady = [(0.001, 0.001)] * 3
    growing = [(0.001, 0.1), (0.1, 0.12), (0.12, 0.144), (0.144, 0.1728)]

    words = spread_words(layer_errors(stack(*steady, *growing, wrong_from=3)))

    assert words == (
        "first beyond tolerance: layers.3 (relative error 0.1); most of it is added there (its inputs have 0.001); "
        "it grows 1.2x per layer over 4 layers after that"
    )


def test_an_error_that_comes_in_is_not_blamed_on_the_layer() -> None:
    words = spread_words(layer_errors(stack((0.4, 0.41), wrong_from=0)))

    assert "most of it is inherited (its inputs have 0.4)" in words


def test_inputs_that_were_not_given_leave_it_unknown() -> None:
    words = spread_words(layer_errors(stack((None, 0.1), (None, 0.05), wrong_from=0)))

    assert "how much of it is inherited is unknown, as its inputs were not given" in words
    assert words.endswith("it shrinks 0.5x per layer over 2 layers after that")


def test_a_correct_port_shows_how_its_noise_grows() -> None:
    assert spread_words(layer_errors(stack((0.0, 1e-7), (1e-7, 2e-7), (2e-7, 4e-7)))) == (
        "no module is beyond tolerance; the error grows 2x per layer over 3 layers"
    )
    assert spread_words(layer_errors(stack((0.0, 1e-7), (1e-7, 1e-7)))).endswith("stays the same over 2 layers")
    assert spread_words(layer_errors(stack((0.0, 0.0)))) == "no module is beyond tolerance"
    assert spread_words(()) == ""


def test_the_outermost_stack_counts_the_layers() -> None:
    verdicts = []
    for number in range(3):
        for inner, error in (("mlp.0", 0.5), ("mlp.1", 0.7)):
            verdicts.append(tensor(f"layers.{number}.{inner}", Role.MODULE_OUTPUT, error))
        verdicts.append(tensor(f"layers.{number}", Role.MODULE_OUTPUT, 0.1 * 3**number))

    assert "grows 3x per layer over 3 layers" in spread_words(layer_errors(verdicts))


def test_a_planted_fault_is_found_where_it_was_planted() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(5)))
    x = torch.randn(8, 32)
    watched = tuple(map(str, range(5)))
    golden = make_golden(model, x, Request(watched=watched))
    with torch.no_grad():
        model[2][0].weight.mul_(-1)  # type: ignore[index]
    port = make_golden(model, x, Request(watched=watched))

    found = compare(golden, dict(port.tensors))

    assert found.spread.startswith("first beyond tolerance: 2 (relative error")
    assert "most of it is added there (its inputs have 0)" in found.spread
    assert [one.state for one in found.layers] == ["passed", "passed", "wrong", "wrong", "wrong"]
    assert found.layers[3].inherited == found.layers[2].error


class Chain(nn.Module):
    """The second layer takes what the first gives; the third takes their sum."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        return torch.as_tensor(self.third(first + self.second(first)))


def test_the_inherited_error_is_that_of_the_module_whose_output_comes_in() -> None:
    golden = make_golden(Chain(), torch.randn(4, 8), Request(watched=("first", "second", "third")))
    port = golden.named(Role.MODULE_OUTPUT) | golden.named(Role.OUTPUT)
    port["modules/second/outputs"] = port["modules/second/outputs"] * 1.5

    found = compare(golden, port)

    first, second, third = found.layers
    assert (first.inherited, second.inherited, third.inherited) == (None, 0.0, None)
    assert second.added == pytest.approx(0.5)
    assert found.next_step == "the inputs of second are correct: the error is in this module"
    assert "most of it is added there" in found.spread
