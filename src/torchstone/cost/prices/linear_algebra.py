"""Dense linear algebra by its textbook counts (Golub and Van Loan), leading term for n x n unless said."""

from torchstone.cost.arguments import output, tensor
from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec


def _sizes(spec: TensorSpec) -> tuple[int, int, int]:
    """(batch, m, n)."""
    m, n = spec.shape[-2:]
    return spec.elements // max(m * n, 1), m, n


@price_of("aten.linalg_solve_triangular", "aten.triangular_solve", kind=Kind.LINEAR_ALGEBRA)
def solve_triangular(call: OpSignature) -> Price:
    """n^2 FLOPs per right-hand side."""
    made = output(call)
    return Price(flops=made.elements * tensor(call, "self", "A").shape[-1])


@price_of("aten.linalg_cholesky_ex", "aten.cholesky", "aten.linalg_cholesky", kind=Kind.LINEAR_ALGEBRA)
def cholesky(call: OpSignature) -> Price:
    """n^3 / 3."""
    batch, _, n = _sizes(tensor(call, "self"))
    return Price(flops=batch * n**3 // 3)


@price_of("aten.linalg_lu_factor_ex", "aten.linalg_lu", "aten._linalg_det", "aten._linalg_slogdet",
          kind=Kind.LINEAR_ALGEBRA)  # fmt: skip
def lu(call: OpSignature) -> Price:
    """2 n^3 / 3."""
    batch, _, n = _sizes(tensor(call, "self", "A"))
    return Price(flops=2 * batch * n**3 // 3)


@price_of("aten.linalg_inv_ex", "aten.linalg_inv", kind=Kind.LINEAR_ALGEBRA)
def inverse(call: OpSignature) -> Price:
    """2 n^3."""
    batch, _, n = _sizes(tensor(call, "A"))
    return Price(flops=2 * batch * n**3)


@price_of("aten._linalg_solve_ex", "aten.linalg_lu_solve", kind=Kind.LINEAR_ALGEBRA)
def solve(call: OpSignature) -> Price:
    """Factor, 2 n^3 / 3, then 2 n^2 per right-hand side."""
    batch, _, n = _sizes(tensor(call, "A", "LU"))
    return Price(flops=2 * batch * n**3 // 3 + 2 * output(call).elements * n)


@price_of("aten.cholesky_solve", "aten._cholesky_solve_helper", kind=Kind.LINEAR_ALGEBRA)
def cholesky_solve(call: OpSignature) -> Price:
    """Two triangular systems: 2 n^2 per right-hand side."""
    made = output(call)
    return Price(flops=2 * made.elements * made.shape[-2])


@price_of("aten.cholesky_inverse", kind=Kind.LINEAR_ALGEBRA)
def cholesky_inverse(call: OpSignature) -> Price:
    """2 n^3 / 3."""
    batch, _, n = _sizes(tensor(call, "self"))
    return Price(flops=2 * batch * n**3 // 3)


@price_of("aten.linalg_qr", "aten.geqrf", kind=Kind.LINEAR_ALGEBRA)
def qr(call: OpSignature) -> Price:
    """Householder: 2 n^2 (m - n/3)."""
    batch, m, n = _sizes(tensor(call, "A", "self"))
    m, n = max(m, n), min(m, n)
    return Price(flops=batch * 2 * n * n * (3 * m - n) // 3)


@price_of("aten._linalg_svd", kind=Kind.LINEAR_ALGEBRA)
def svd(call: OpSignature) -> Price:
    """With both factors: 4 m^2 n + 8 m n^2 + 9 n^3."""
    batch, m, n = _sizes(tensor(call, "A"))
    m, n = max(m, n), min(m, n)
    return Price(flops=batch * (4 * m * m * n + 8 * m * n * n + 9 * n**3))


@price_of("aten._linalg_eigh", "aten.linalg_eig", kind=Kind.LINEAR_ALGEBRA)
def eigen(call: OpSignature) -> Price:
    """Symmetric with vectors: 9 n^3; general: 25 n^3."""
    batch, _, n = _sizes(tensor(call, "A", "self"))
    return Price(flops=batch * (9 if "eigh" in call.op else 25) * n**3)
