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
        ("linalg_qr", "A", 2 * 36 * 12 // 3),
        ("_linalg_svd", "A", 21 * 6**3),
        ("_linalg_eigh", "A", 9 * 6**3),
        ("linalg_eig", "self", 25 * 6**3),
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
