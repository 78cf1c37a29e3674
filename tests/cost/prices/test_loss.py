import torch
from torch.nn import functional as F  # noqa: N812 - its usual name

from tests.cost.calls import cost_of, flops_of

X, Y = torch.rand(4, 8), torch.rand(4, 8)
CLASSES = torch.tensor([0, 1, 2, 3])


def test_squared_error_costs_three_per_element() -> None:
    assert flops_of(F.mse_loss, X, Y) == 3 * 32


def test_cross_entropy_is_a_softmax_and_one_pick_per_row() -> None:
    totals = cost_of(F.cross_entropy, X, CLASSES).totals
    assert totals.flops == 5 * 32 + 2 * 4
    assert totals.bytes_read == 128 + 16 + 32


def test_gradients_of_losses_have_prices() -> None:
    given = X.clone().requires_grad_()
    assert cost_of(lambda x: F.cross_entropy(x, CLASSES), given, backward=True).totals.flops == 168 + 4 + 4 * 32
    assert cost_of(lambda x: F.mse_loss(x, Y), given, backward=True).totals.flops == 6 * 32


def test_alignment_costs_three_log_additions_per_step_and_state() -> None:
    probabilities = torch.rand(10, 2, 5).log_softmax(-1)
    targets, steps, lengths = torch.ones(2, 3, dtype=torch.long), torch.tensor([10, 10]), torch.tensor([3, 3])
    assert flops_of(lambda p: F.ctc_loss(p, targets, steps, lengths, reduction="none"), probabilities) >= 15 * 20 * 7


def test_the_gradient_of_an_alignment_has_a_price() -> None:
    probabilities = torch.rand(10, 2, 5).log_softmax(-1).requires_grad_()
    targets, steps, lengths = torch.ones(2, 3, dtype=torch.long), torch.tensor([10, 10]), torch.tensor([3, 3])

    def loss(p: torch.Tensor) -> torch.Tensor:
        return F.ctc_loss(p, targets, steps, lengths, reduction="none")

    assert cost_of(loss, probabilities, backward=True).totals.flops >= 2 * 15 * 20 * 7 + 4 * 100
