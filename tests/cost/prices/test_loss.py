import torch
from torch.nn import functional as F  # noqa: N812 - its usual name

from tests.cost.calls import cost_of, flops_of, priced, several, spec

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


def test_targets_laid_one_after_the_other_count_by_the_longest() -> None:
    flat, padded = spec(5, dtype="int64"), spec(2, 3, dtype="int64")
    for targets in (flat, padded):
        lengths = {"input_lengths": several(10, 10), "target_lengths": several(3, 2)}
        found = priced("aten._ctc_loss.default", several(spec(2)), log_probs=spec(10, 2, 5), targets=targets, **lengths)
        assert found.flops == 15 * 20 * 7


def test_margins_compare_each_class_with_the_right_ones() -> None:
    assert flops_of(lambda x: F.multi_margin_loss(x, CLASSES), X) == 4 * 32
    assert flops_of(lambda x: F.multi_margin_loss(x, CLASSES, p=2, weight=torch.ones(8)), X) == 6 * 32
    right = torch.zeros(4, 8, dtype=torch.long)
    assert flops_of(lambda x: F.multilabel_margin_loss(x, right), X) == 4 * 32 * 8
    signs, given = torch.ones(4, 8), X.clone().requires_grad_()
    assert cost_of(lambda x: F.soft_margin_loss(x, signs), given, backward=True).totals.flops == (5 + 6) * 32


def test_a_loss_with_its_last_layer_is_the_product_and_the_products_of_its_gradients() -> None:
    op = "torch_nn._linear_cross_entropy_batch_chunked"
    tensors = {"input": spec(6, 8), "linear_weight": spec(5, 8), "target": spec(6, dtype="int64")}
    product, rest = 2 * 6 * 8 * 5, 5 * 30 + 2 * 6
    plain = priced(f"{op}_no_reduction.default", spec(6), **tensors)
    assert (plain.matmul_flops, plain.flops) == (product, product + rest)
    trained = priced(f"{op}.default", spec(), **tensors, compute_input_grad=True, compute_linear_weight_grad=True)
    assert (trained.matmul_flops, trained.flops) == (3 * product, 3 * product + rest + 2 * 30)
