from typing import Any

import pytest
import torch

from tests.cost.calls import flops_of, priced, several, spec


def test_a_list_in_place_is_read_and_written() -> None:
    found = priced("aten._foreach_mul_.Scalar", None, self=several(spec(4), spec(6)), scalar=2.0)
    assert (found.flops, found.reads, found.writes) == (10, (16, 24), (16, 24))


def test_a_new_list_is_written() -> None:
    found = priced("aten._foreach_sqrt.default", several(spec(4), spec(6)), self=several(spec(4), spec(6)))
    assert (found.flops, found.writes) == (10, (16, 24))


def test_zeroing_reads_nothing() -> None:
    found = priced("aten._foreach_zero_.default", None, self=several(spec(4)))
    assert (found.flops, found.reads, found.writes) == (0, (0,), (16,))


def test_a_fused_step_updates_parameters_and_both_moments() -> None:
    lists = {name: several(spec(4)) for name in ("self", "grads", "exp_avgs", "exp_avg_sqs")}
    found = priced("aten._fused_adamw_.default", None, **lists, amsgrad=False)
    assert (found.flops, found.reads, found.writes) == (13 * 4, (16,) * 4, (16,) * 3)


def test_a_factor_before_the_second_list_is_one_multiplication_more() -> None:
    lists = {"self": several(spec(4)), "other": several(spec(4))}
    assert priced("aten._foreach_add_.List", None, **lists, alpha=0.5).flops == 8
    assert priced("aten._foreach_add_.List", None, **lists, alpha=1).flops == 4


def test_a_number_to_the_power_of_a_list_costs_the_list() -> None:
    found = priced("aten._foreach_pow.ScalarAndTensor", several(spec(4), spec(6)), exponent=several(spec(4), spec(6)))
    assert found.flops == 10


def test_gradients_are_unscaled_in_place() -> None:
    found = priced(
        "aten._amp_foreach_non_finite_check_and_unscale_.default", None,
        self=several(spec(4), spec(6)), found_inf=spec(), inv_scale=spec(),
    )  # fmt: skip
    assert (found.flops, found.writes) == (20, (16, 24))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("SGD", {}),
        ("SGD", {"weight_decay": 0.1}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("Adam", {}),
        ("Adam", {"weight_decay": 0.1, "amsgrad": True}),
        ("AdamW", {}),
    ],
)
def test_a_fused_step_costs_what_its_parts_do(name: str, more: dict[str, Any]) -> None:
    fused, in_parts = (step_flops(name, fused=one, foreach=not one, **more) for one in (True, False))
    assert fused == in_parts > 0


def step_flops(name: str, **switches: Any) -> int:
    """FLOPs per parameter of the second step of one of torch's optimisers."""
    parameter = torch.nn.Parameter(torch.ones(10_000))
    parameter.grad = torch.ones(10_000)
    optimiser = getattr(torch.optim, name)([parameter], lr=0.1, **switches)
    optimiser.step()

    def step(x: torch.Tensor) -> torch.Tensor:
        optimiser.step()
        return x.view(1)

    return round(flops_of(step, torch.ones(1)) / 10_000)
