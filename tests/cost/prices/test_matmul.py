import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cost.calls import cost_of, counted_by_torch, flops_of, meta, priced, several, spec

sizes = st.integers(1, 40)
quickly = settings(max_examples=25, deadline=None)


@quickly
@given(m=sizes, k=sizes, n=sizes)
def test_mm_costs_what_torch_says(m: int, k: int, n: int) -> None:
    left, right = meta((m, k), (k, n))
    table = cost_of(torch.mm, left, right, mode="meta")
    assert table.totals.matmul_flops == table.totals.flops == counted_by_torch(torch.mm, left, right)


@quickly
@given(b=sizes, m=sizes, k=sizes, n=sizes)
def test_bmm_and_baddbmm_cost_what_torch_says(b: int, m: int, k: int, n: int) -> None:
    bias, left, right = meta((b, m, n), (b, m, k), (b, k, n))
    for function, tensors in ((torch.bmm, (left, right)), (torch.baddbmm, (bias, left, right))):
        table = cost_of(function, *tensors, mode="meta")
        assert table.totals.matmul_flops == counted_by_torch(function, *tensors)


@quickly
@given(m=sizes, k=sizes, n=sizes)
def test_a_bias_is_one_addition_per_result(m: int, k: int, n: int) -> None:
    tensors = meta((n,), (m, k), (k, n))
    totals = cost_of(torch.addmm, *tensors, mode="meta").totals
    assert totals.matmul_flops == counted_by_torch(torch.addmm, *tensors)
    assert totals.flops - totals.matmul_flops == m * n


@quickly
@given(rows=sizes, k=sizes, n=sizes, groups=st.integers(1, 12))
def test_grouped_rows_are_multiplied_once_each(rows: int, k: int, n: int, groups: int) -> None:
    price = priced(
        "aten._grouped_mm.default",
        spec(rows, n),
        self=spec(rows, k),
        mat2=spec(groups, k, n),
        offs=spec(groups, dtype="int32"),
        bias=None,
        out_dtype=None,
    )
    assert price.flops == price.matmul_flops == 2 * rows * k * n
    assert price.reads == (rows * k * 4, min(rows, groups) * k * n * 4, groups * 4)


def test_groups_on_both_sides_are_a_batch() -> None:
    price = priced("aten._grouped_mm.default", spec(3, 4, 6), self=spec(3, 4, 5), mat2=spec(3, 5, 6), offs=None)
    assert price.matmul_flops == 2 * 3 * 4 * 5 * 6


def test_the_gradient_of_grouped_weights_costs_as_much_as_the_product() -> None:
    price = priced("aten._grouped_mm.default", spec(3, 4, 6), self=spec(4, 10), mat2=spec(10, 6), offs=spec(3))
    assert price.matmul_flops == 2 * 4 * 10 * 6


def test_complex_products_cost_four_real_ones() -> None:
    left, right = torch.ones(3, 4, dtype=torch.complex64), torch.ones(4, 5, dtype=torch.complex64)
    assert cost_of(torch.mm, left, right).totals.flops == 4 * 2 * 3 * 4 * 5


def test_vectors_are_matrices_with_one_column() -> None:
    assert cost_of(torch.mv, torch.ones(3, 4), torch.ones(4)).totals.flops == 24
    assert cost_of(torch.dot, torch.ones(4), torch.ones(4)).totals.flops == 8
    assert cost_of(torch.addmv, torch.ones(3), torch.ones(3, 4), torch.ones(4)).totals.flops == 27


def test_a_linear_layer_costs_the_same_however_it_is_spelled() -> None:
    whole = priced("aten.linear.default", spec(2, 3, 5), input=spec(2, 3, 4), weight=spec(5, 4), bias=spec(5))
    parts = priced("aten.addmm.default", spec(6, 5), self=spec(5), mat1=spec(6, 4), mat2=spec(4, 5))
    assert (whole.flops, whole.matmul_flops) == (parts.flops, parts.matmul_flops)


def test_an_outer_product_is_a_multiply_add_per_element() -> None:
    price = priced("aten.addr.default", spec(3, 4), self=spec(3, 4), vec1=spec(3), vec2=spec(4))
    assert price.matmul_flops == 2 * 12


def test_distances_cost_three_per_coordinate_and_a_root() -> None:
    assert cost_of(torch.cdist, torch.ones(30, 4), torch.ones(40, 4)).totals.flops >= 30 * 40 * (3 * 4 + 1)


def test_the_three_factors_of_a_bilinear_layer_are_multiplied_over_their_common_shape() -> None:
    layer = torch.nn.Bilinear(3, 4, 5, bias=False)
    totals = cost_of(layer, torch.ones(2, 3), torch.ones(2, 4)).totals
    assert totals.matmul_flops == 2 * 2 * 3 * 4 * 5


def test_a_linear_backward_is_two_products() -> None:
    price = priced(
        "aten.linear_backward.default",
        several(spec(6, 4), spec(5, 4)),
        self=spec(6, 4),
        grad_output=spec(6, 5),
        weight=spec(5, 4),
    )
    assert price.matmul_flops == 2 * 2 * 6 * 4 * 5


def test_distances_among_the_rows_of_one_matrix_count_each_pair_once() -> None:
    assert priced("aten._pdist_forward.default", spec(10), self=spec(5, 4)).flops == 10 * (3 * 4 + 1)
    back = priced("aten._cdist_backward.default", spec(5, 4), grad=spec(5, 6), x1=spec(5, 4), x2=spec(6, 4))
    assert back.flops == 3 * 30 * 4


def test_an_element_that_holds_two_values_is_multiplied_twice() -> None:
    packed = {"self": spec(4, 8, dtype="float4_e2m1fn_x2"), "mat2": spec(8, 6, dtype="float4_e2m1fn_x2")}
    found = priced("aten._scaled_mm.default", spec(4, 6, dtype="bfloat16"), **packed)
    assert (found.matmul_flops, found.reads) == (2 * 4 * 16 * 6, (32, 48))


def test_factors_of_bias_and_product_count_and_an_unused_bias_is_not_read() -> None:
    bias, left, right = torch.ones(2, 3, 5), torch.ones(2, 3, 4), torch.ones(2, 4, 5)
    product, results = 2 * 2 * 3 * 4 * 5, 2 * 3 * 5
    for beta, alpha, steps in ((1, 1, 1), (1, 0.5, 2), (0, 0.5, 1), (0, 1, 0), (2, 0.5, 3)):
        totals = cost_of(lambda *t, b=beta, a=alpha: torch.baddbmm(*t, beta=b, alpha=a), bias, left, right).totals
        assert totals.flops == product + steps * results
        assert totals.bytes_read == (120 if beta else 0) + 96 + 160


def test_an_activation_in_the_same_kernel_counts() -> None:
    tensors = (torch.ones(5), torch.ones(3, 4), torch.ones(4, 5))
    assert flops_of(torch._addmm_activation, *tensors) == 120 + 15 + 15
    assert flops_of(lambda *t: torch._addmm_activation(*t, use_gelu=True), *tensors) == 120 + 15 + 5 * 15


def test_the_gradient_of_own_distances_goes_to_both_points() -> None:
    points = torch.rand(5, 3, requires_grad=True)
    forward, backward = 10 * (3 * 3 + 1), 4 * 10 * 3
    assert cost_of(torch.pdist, points, backward=True).totals.flops == forward + backward


def test_complex_biases_and_factors_cost_what_complex_additions_and_products_do() -> None:
    bias, left, right = (torch.ones(shape, dtype=torch.complex64) for shape in ((3, 7), (3, 5), (5, 7)))
    product = 8 * 3 * 5 * 7

    assert flops_of(torch.addmm, bias, left, right) == product + 2 * 21
    assert flops_of(lambda *x: torch.addmm(*x, alpha=2, beta=3), bias, left, right) == product + (2 + 6 + 6) * 21


def test_an_outer_product_counts_its_factors_and_reads_no_bias_that_it_does_not_add() -> None:
    bias, left, right = torch.ones(5, 7), torch.ones(5), torch.ones(7)

    assert flops_of(torch.addr, bias, left, right) == 2 * 35
    assert flops_of(lambda *x: torch.addr(*x, alpha=2, beta=3), bias, left, right) == 4 * 35
    table = cost_of(lambda *x: torch.addr(*x, beta=0), bias, left, right)
    assert (table.totals.flops, table.totals.bytes_read) == (2 * 35, 4 * (5 + 7))
