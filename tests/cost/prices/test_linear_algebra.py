import pytest
import torch

from tests.cost.calls import cost_of, flops_of, priced, several, spec

A = torch.eye(6) * 3


def test_a_triangular_system_costs_n_squared_per_right_hand_side() -> None:
    found = flops_of(lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), A, torch.ones(6, 2))
    assert found == 36 * 2


@pytest.mark.parametrize(
    ("op", "name", "flops"),
    [
        ("linalg_cholesky_ex", "self", 6**3 // 3),
        ("linalg_lu_factor_ex", "A", 2 * 6**3 // 3),
        ("linalg_inv_ex", "A", 2 * 6**3),
        ("linalg_qr", "A", 2 * 36 * 12 // 3 + 4 * 6**3 // 3),
        ("_linalg_svd", "A", 21 * 6**3),
        ("_linalg_eigh", "A", 9 * 6**3),
        ("linalg_eig", "self", 25 * 6**3),
        ("_linalg_eigvals", "self", 10 * 6**3),
        ("linalg_ldl_factor_ex", "self", 6**3 // 3),
        ("linalg_matrix_exp", "self", 10 * 6**3),
        ("linalg_pinv", "self", 21 * 6**3 + 36 + 2 * 6**3),
    ],
)
def test_factorisations_cost_their_textbook_counts(op: str, name: str, flops: int) -> None:
    one = priced(f"aten.{op}.default", several(spec(6, 6)), **{f"{name}_": spec(6, 6)})
    batch = priced(f"aten.{op}.default", several(spec(5, 6, 6)), **{f"{name}_": spec(5, 6, 6)})
    assert (one.flops, batch.flops) == (flops, 5 * flops)


def test_a_system_is_factored_once_for_all_right_hand_sides() -> None:
    totals = cost_of(torch.linalg.solve, A, torch.ones(6, 2)).totals
    assert totals.flops == 2 * 6**3 // 3 + 2 * 36 * 2


def test_a_cholesky_factor_solves_two_triangular_systems() -> None:
    assert flops_of(torch.cholesky_solve, torch.ones(6, 2), A) == 2 * 36 * 2
    assert priced("aten.cholesky_inverse.default", spec(6, 6), self=spec(6, 6)).flops == 2 * 6**3 // 3


def test_the_old_name_of_a_triangular_system_takes_its_matrix_second() -> None:
    found = priced("aten.triangular_solve.default", several(spec(6, 2), spec(6, 6)), self=spec(6, 2), A=spec(6, 6))
    assert found.flops == 36 * 2


def test_a_system_that_is_factored_already_is_not_factored_again() -> None:
    factors, pivots = torch.linalg.lu_factor(A)
    assert flops_of(torch.linalg.lu_solve, factors, pivots, torch.ones(6, 2)) == 2 * 36 * 2
    found = priced("aten.linalg_ldl_solve.default", spec(6, 2), LD=spec(6, 6), pivots=spec(6), B=spec(6, 2))
    assert found.flops == 2 * 36 * 2


def test_a_factorisation_of_a_tall_matrix_grows_with_its_rows() -> None:
    assert flops_of(torch.linalg.lu_factor, torch.rand(9, 6)) == 36 * 9 - 6**3 // 3
    assert flops_of(lambda a: torch.linalg.qr(a, mode="r"), torch.rand(9, 6)) == 2 * 36 * (9 - 2)
    assert flops_of(torch.linalg.qr, torch.rand(9, 6)) == 2 * 2 * 36 * (9 - 2)


def test_values_alone_cost_less_than_values_and_vectors() -> None:
    values = priced("aten._linalg_svd.default", several(spec(6)), A=spec(9, 6), compute_uv=False)
    assert values.flops == 4 * 9 * 36 - 4 * 6**3 // 3
    assert priced("aten._linalg_eigh.default", several(spec(6)), A=spec(6, 6), compute_v=False).flops == 4 * 6**3 // 3


def test_complex_matrices_cost_four_times_as_much() -> None:
    real, complex_ = torch.eye(6), torch.eye(6, dtype=torch.complex64)
    for function in (torch.linalg.inv_ex, torch.linalg.cholesky_ex, torch.linalg.eigh, torch.linalg.svd):
        assert flops_of(function, complex_) == 4 * flops_of(function, real)


def test_reflectors_are_multiplied_out_or_applied() -> None:
    reflectors, scales = torch.geqrf(torch.rand(9, 6))
    formed = flops_of(torch.linalg.householder_product, reflectors, scales)
    assert formed == 4 * 9 * 36 - 2 * 15 * 36 + 4 * 6**3 // 3
    assert flops_of(torch.ormqr, reflectors, scales, torch.rand(9, 2)) == 2 * 2 * 6 * (18 - 6)
    assert (
        flops_of(lambda r, s, x: torch.ormqr(r, s, x, left=False), reflectors, scales, torch.rand(2, 9))
        == 2 * 2 * 6 * 12
    )


def test_least_squares_factors_once_for_all_right_hand_sides() -> None:
    one, three = (flops_of(torch.linalg.lstsq, torch.rand(9, 6), torch.rand(9, sides)) for sides in (1, 3))
    assert (one, three - one) == (2 * 36 * 7 + 2 * 6 * 12 + 36, 2 * (2 * 6 * 12 + 36))
