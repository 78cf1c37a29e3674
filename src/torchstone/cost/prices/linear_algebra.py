"""Dense linear algebra by its textbook counts (Golub and Van Loan), and Fourier transforms."""

from math import prod

from torchstone.cost.registry import Price, numbers, output, price_of, tensor, value_of
from torchstone.record.cost import Kind, times_log2
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec

# Dense linear algebra by its textbook counts (Golub and Van Loan), leading term for n x n unless said.


_COMPLEX = 4  # a complex multiply-add is four real ones


def _sizes(spec: TensorSpec) -> tuple[int, int, int]:
    """(times, m, n): matrices, a complex one as four; rows; columns."""
    m, n = spec.shape[-2:]
    return spec.elements // max(m * n, 1) * _reals(spec), m, n


def _reals(spec: TensorSpec) -> int:
    return _COMPLEX if spec.dtype.startswith("complex") else 1


def _tall(spec: TensorSpec) -> tuple[int, int, int]:
    """As _sizes, with the longer side first."""
    times, m, n = _sizes(spec)
    return times, max(m, n), min(m, n)


@price_of("aten.linalg_solve_triangular", "aten.triangular_solve", kind=Kind.LINEAR_ALGEBRA)
def solve_triangular(call: OpSignature) -> Price:
    """n^2 FLOPs per right-hand side."""
    made, matrix = output(call), tensor(call, "A", "self")
    return Price(flops=made.elements * matrix.shape[-1] * _reals(made))


@price_of("aten.linalg_cholesky_ex", "aten.cholesky", "aten.linalg_cholesky", "aten.linalg_ldl_factor_ex",
          kind=Kind.LINEAR_ALGEBRA)  # fmt: skip
def cholesky(call: OpSignature) -> Price:
    """n^3 / 3."""
    times, _, n = _sizes(tensor(call, "self"))
    return Price(flops=times * n**3 // 3)


@price_of("aten.linalg_lu_factor_ex", "aten.linalg_lu", "aten._linalg_det", "aten._linalg_slogdet",
          kind=Kind.LINEAR_ALGEBRA)  # fmt: skip
def lu(call: OpSignature) -> Price:
    """n^2 (m - n/3) for m >= n: 2 n^3 / 3 where it is square."""
    times, m, n = _tall(tensor(call, "self", "A"))
    return Price(flops=times * n * n * (3 * m - n) // 3)


@price_of("aten.linalg_inv_ex", "aten.linalg_inv", kind=Kind.LINEAR_ALGEBRA)
def inverse(call: OpSignature) -> Price:
    """2 n^3."""
    times, _, n = _sizes(tensor(call, "A"))
    return Price(flops=2 * times * n**3)


@price_of("aten._linalg_solve_ex", kind=Kind.LINEAR_ALGEBRA)
def solve(call: OpSignature) -> Price:
    """Factor, 2 n^3 / 3, then 2 n^2 per right-hand side."""
    matrix, made = tensor(call, "A"), output(call)
    times, _, n = _sizes(matrix)
    return Price(flops=2 * times * n**3 // 3 + 2 * made.elements * n * _reals(made))


@price_of("aten.linalg_lu_solve", "aten.linalg_ldl_solve", "aten.cholesky_solve", "aten._cholesky_solve_helper",
          kind=Kind.LINEAR_ALGEBRA)  # fmt: skip
def solve_factored(call: OpSignature) -> Price:
    """Two triangular systems: 2 n^2 per right-hand side."""
    made, matrix = output(call), tensor(call, "LU", "LD", "A", "input2")
    return Price(flops=2 * made.elements * matrix.shape[-1] * _reals(made))


@price_of("aten.cholesky_inverse", kind=Kind.LINEAR_ALGEBRA)
def cholesky_inverse(call: OpSignature) -> Price:
    """2 n^3 / 3."""
    times, _, n = _sizes(tensor(call, "self"))
    return Price(flops=2 * times * n**3 // 3)


@price_of("aten.linalg_qr", "aten.geqrf", kind=Kind.LINEAR_ALGEBRA)
def qr(call: OpSignature) -> Price:
    """Householder: 2 n^2 (m - n/3), and where q is wanted its columns are formed from the reflectors."""
    matrix = tensor(call, "A", "self")
    times, m, n = _tall(matrix)
    factor = times * 2 * n * n * (3 * m - n) // 3
    if "geqrf" in call.op or value_of(call, "mode") == "r":
        return Price(flops=factor)
    rows, columns = output(call).shape[-2:]
    return Price(flops=factor + times * _formed(rows, columns, n))


def _formed(m: int, n: int, k: int) -> int:
    """4mnk - 2(m + n)k^2 + 4k^3/3 for the first n columns of a product of k reflectors of length m."""
    return 4 * m * n * k - 2 * (m + n) * k * k + 4 * k**3 // 3


@price_of("aten.linalg_householder_product", kind=Kind.LINEAR_ALGEBRA)
def householder_product(call: OpSignature) -> Price:
    """Columns formed from reflectors: 4mnk - 2(m + n)k^2 + 4k^3/3."""
    times, m, n = _sizes(tensor(call, "input"))
    return Price(flops=times * _formed(m, n, tensor(call, "tau").shape[-1]))


@price_of("aten.ormqr", kind=Kind.LINEAR_ALGEBRA)
def reflect(call: OpSignature) -> Price:
    """K reflectors of length m applied to n columns: 2nk(2m - k)."""
    times, m, n = _sizes(tensor(call, "input3"))
    if value_of(call, "left") is False:
        m, n = n, m
    k = tensor(call, "input2").shape[-1]
    return Price(flops=times * 2 * n * k * (2 * m - k))


@price_of("aten.linalg_lstsq", kind=Kind.LINEAR_ALGEBRA)
def least_squares(call: OpSignature) -> Price:
    """By QR: 2 n^2 (m - n/3), then per right-hand side 2n(2m - n) to apply q and n^2 to solve."""
    times, m, n = _tall(tensor(call, "self"))
    right = tensor(call, "b")
    sides = max(right.elements * _reals(right) // max(times * tensor(call, "self").shape[-2], 1), 1)
    return Price(flops=times * (2 * n * n * (3 * m - n) // 3 + sides * (2 * n * (2 * m - n) + n * n)))


@price_of("aten._linalg_svd", kind=Kind.LINEAR_ALGEBRA)
def svd(call: OpSignature) -> Price:
    """With both factors: 4 m^2 n + 8 m n^2 + 9 n^3; the values alone: 4 m n^2 - 4 n^3 / 3."""
    times, m, n = _tall(tensor(call, "A"))
    if value_of(call, "compute_uv") is False:
        return Price(flops=times * (4 * m * n * n - 4 * n**3 // 3))
    return Price(flops=times * _both_factors(m, n))


def _both_factors(m: int, n: int) -> int:
    return 4 * m * m * n + 8 * m * n * n + 9 * n**3


@price_of("aten.linalg_pinv", kind=Kind.LINEAR_ALGEBRA)
def pseudo_inverse(call: OpSignature) -> Price:
    """Singular values with both factors, one factor scaled, then the product: 2 m n^2."""
    times, m, n = _tall(tensor(call, "self"))
    return Price(flops=times * (_both_factors(m, n) + n * n + 2 * m * n * n))


@price_of("aten._linalg_eigh", kind=Kind.LINEAR_ALGEBRA)
def symmetric_eigen(call: OpSignature) -> Price:
    """With vectors: 9 n^3; the values alone: 4 n^3 / 3."""
    times, _, n = _sizes(tensor(call, "A"))
    return Price(flops=4 * times * n**3 // 3 if value_of(call, "compute_v") is False else 9 * times * n**3)


@price_of("aten.linalg_eig", "aten._linalg_eigvals", kind=Kind.LINEAR_ALGEBRA)
def eigen(call: OpSignature) -> Price:
    """With vectors: 25 n^3; the values alone: 10 n^3."""
    times, _, n = _sizes(tensor(call, "self"))
    return Price(flops=times * (10 if "eigvals" in call.op else 25) * n**3)


@price_of("aten.linalg_matrix_exp", kind=Kind.LINEAR_ALGEBRA)
def matrix_exponential(call: OpSignature) -> Price:
    """A polynomial of degree 18 by five products, 10 n^3; squarings depend on the values and are not counted."""
    times, _, n = _sizes(tensor(call, "self"))
    return Price(flops=times * 10 * n**3)


# Fourier transforms: 5 * n * log2(n) real FLOPs for a complex transform of length n, half of it for a real one.


_FFT_COMPLEX = 10  # halves of a FLOP
_REAL = 5


def _transform(spec: TensorSpec, dims: tuple[int, ...], halves: int) -> Price:
    length = prod(spec.shape[dim] for dim in dims)
    return Price(flops=times_log2(halves * spec.elements, length))


@price_of("aten._fft_c2c", kind=Kind.FFT)
def complex_to_complex(call: OpSignature) -> Price:
    """A transform along the dimensions, for each of the rest."""
    return _transform(tensor(call, "self"), numbers(call, "dim") or (), _FFT_COMPLEX)


@price_of("aten._fft_r2c", kind=Kind.FFT)
def real_to_complex(call: OpSignature) -> Price:
    """Real input: half the work."""
    return _transform(tensor(call, "self"), numbers(call, "dim") or (), _REAL)


@price_of("aten._fft_c2r", kind=Kind.FFT)
def complex_to_real(call: OpSignature) -> Price:
    """Real result: half the work."""
    return _transform(output(call), numbers(call, "dim") or (), _REAL)
