"""Products of matrices."""

from __future__ import annotations

from torchstone.mapping.table import Library, NotMappedError, Number, Tensor, maps

_LARGEST, _MOST_PARTS = 1 << 26, 32  # elements of the products of some experts; parts of a grouped product


@maps("aten.mm", "aten.bmm", "aten.matmul")
def matmul(tt: Library, self: Tensor, **operand: object) -> Tensor:
    """The second operand is called mat2 or other."""
    return tt.matmul(self, operand.get("mat2", operand.get("other")))


@maps("aten.mv")
def mv(tt: Library, self: Tensor, vec: Tensor) -> Tensor:
    """A matrix with one column, and its column taken out again."""
    column = tt.reshape(vec, [vec.shape[0], 1])
    return tt.reshape(tt.matmul(self, column), [self.shape[0]])


@maps("aten.dot")
def dot(tt: Library, self: Tensor, tensor: Tensor) -> Tensor:
    """A row times a column."""
    row, column = tt.reshape(self, [1, self.shape[0]]), tt.reshape(tensor, [tensor.shape[0], 1])
    return tt.reshape(tt.matmul(row, column), [])


@maps("aten.addmm")
def addmm(tt: Library, self: Tensor, mat1: Tensor, mat2: Tensor, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """A linear layer where the addend is one row; otherwise a product and a sum."""
    if (beta, alpha) == (1, 1) and len(self.shape) == 1:
        return tt.linear(mat1, mat2, bias=tt.reshape(self, [1, self.shape[0]]))
    product = tt.matmul(mat1, mat2)
    product = product if alpha == 1 else tt.multiply(product, alpha)
    return tt.add(product, self if beta == 1 else tt.multiply(self, beta))


@maps("aten.baddbmm")
def baddbmm(tt: Library, self: Tensor, batch1: Tensor, batch2: Tensor, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """A product and a sum; beta 0 means that the addend is not read."""
    product = tt.matmul(batch1, batch2)
    product = product if alpha == 1 else tt.multiply(product, alpha)
    return product if beta == 0 else tt.add(product, self if beta == 1 else tt.multiply(self, beta))


@maps("aten.linear")
def linear(tt: Library, input: Tensor, weight: Tensor, bias: Tensor = None) -> Tensor:
    """Torch keeps the weight transposed; ttnn transposes it in the op."""
    row = None if bias is None else tt.reshape(bias, [1, bias.shape[0]])
    return tt.linear(input, weight, bias=row, transpose_b=True)


@maps("aten._grouped_mm")
def grouped_mm(
    tt: Library, self: Tensor, mat2: Tensor, offs: Tensor = None, bias: Tensor = None, out_dtype: Tensor = None
) -> Tensor:
    """Rows of one matrix by expert: every expert multiplies all rows, and a mask keeps its own.

    Exact, at the price of as many products as there are experts; ttnn's ops for experts want routing tables that
    an ATen call does not have.
    """
    if offs is None or bias is not None or len(self.shape) != 2 or len(mat2.shape) != 3:  # noqa: PLR2004 - (rows, k) @ (experts, k, n)
        msg = "grouped products other than rows by expert"
        raise NotMappedError(msg)
    experts, rows = mat2.shape[0], self.shape[0]
    ends = tt.as_float(tt.reshape(offs, [experts, 1, 1]))
    row = tt.reshape(tt.arange(0, rows, 1, "float32"), [1, rows, 1])
    before_end = tt.lt(tt.broadcast_to(row, [experts, rows, 1]), tt.broadcast_to(ends, [experts, rows, 1]))
    earlier = tt.slice(before_end, [0, 0, 0], [experts - 1, rows, 1]) if experts > 1 else None
    first = tt.full([1, rows, 1], 0.0, "float32")
    shifted = first if earlier is None else tt.concat([first, tt.as_float(earlier)], 0)
    own = tt.subtract(tt.as_float(before_end), shifted)
    total: Tensor = None
    each = max(1, _LARGEST // (rows * max(mat2.shape[1:])), -(-experts // _MOST_PARTS))
    for first in range(0, experts, each):  # a few experts at a time, so that their products fit beside the weights
        last = min(first + each, experts)
        some = (tt.slice(one, [first, 0, 0], [last, *one.shape[1:]]) for one in (mat2, own))
        weights, mask = (mat2, own) if each >= experts else some
        wide = tt.broadcast_to(tt.reshape(self, [1, *self.shape]), [last - first, *self.shape])
        part = tt.sum(tt.multiply(tt.matmul(wide, weights), mask), 0)
        total = part if total is None else tt.add(total, part)
    return tt.reshape(total, [rows, mat2.shape[2]])
