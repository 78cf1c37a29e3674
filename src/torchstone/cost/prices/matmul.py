"""Matrix multiplication: every output element is a dot product of length k; plain, batched and with packed weights."""

from math import prod

from torchstone.cost.registry import (
    NoPriceError,
    Price,
    bytes_of,
    flag,
    numbers,
    optional_tensor,
    output,
    price_of,
    reads_of,
    tensor,
    value_of,
)
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec

# Matrix multiplication: every output element is a dot product of length k, that is k multiply-adds.


_COMPLEX = 4  # a complex multiply-add is four real ones
_PACKED = 2  # an element that holds two values is multiplied twice
_MATRIX = 2


def multiply_adds(count: int, spec: TensorSpec) -> int:
    """FLOPs of a number of multiply-adds on elements of a tensor's type."""
    return 2 * count * (_COMPLEX if spec.dtype.startswith("complex") else _PACKED if spec.dtype.endswith("_x2") else 1)


def additions(count: int, spec: TensorSpec) -> int:
    """FLOPs of a number of additions of a tensor's type: a complex one is two."""
    return 2 * count if spec.dtype.startswith("complex") else count


@price_of("aten.mm", "aten._int_mm", "aten._scaled_mm", "aten._scaled_mm_v2", kind=Kind.MATMUL)
def mm(call: OpSignature) -> Price:
    """(m, k) @ (k, n): m*n dot products of length k."""
    left, right = tensor(call, "self"), tensor(call, "mat2")
    (m, k), n = left.shape, right.shape[-1]
    flops = multiply_adds(m * k * n, left)
    bias = additions(m * n, left) if optional_tensor(call, "bias") else 0
    return Price(flops=flops + bias, matmul_flops=flops)


@price_of("aten.addmm", "aten._addmm_activation", kind=Kind.MATMUL)
def addmm(call: OpSignature) -> Price:
    """Bias + (m, k) @ (k, n): one addition per output element on top, and the activation where it is one kernel."""
    left, right = tensor(call, "mat1"), tensor(call, "mat2")
    (m, k), n = left.shape, right.shape[-1]
    flops = multiply_adds(m * k * n, left)
    activation = (5 if flag(call, "use_gelu") else 1) * m * n if "activation" in call.op else 0
    return _with_bias(call, flops, added=m * n, more=activation)


def _with_bias(call: OpSignature, flops: int, *, added: int, more: int = 0) -> Price:
    """beta*bias + alpha*product: one addition, one multiplication per factor but 1; with beta = 0 no bias is read."""
    bias = 0 if value_of(call, "beta") == 0 else additions(added, output(call))
    return Price(flops=flops + bias + _factors(call, added) + more, matmul_flops=flops, reads=_reads_with_bias(call))


def _factors(call: OpSignature, added: int) -> int:
    """Multiplications with factors other than 1; a complex one is four and two additions."""
    steps = (value_of(call, "alpha") not in (None, 1)) + (value_of(call, "beta") not in (None, 0, 1))
    return steps * added * (_COMPLEX + 2 if output(call).dtype.startswith("complex") else 1)


def _reads_with_bias(call: OpSignature) -> tuple[int, ...]:
    reads = reads_of(call)
    return (0, *reads[1:]) if value_of(call, "beta") == 0 else reads


@price_of("aten.bmm", "aten._int_bmm", kind=Kind.MATMUL)
def bmm(call: OpSignature) -> Price:
    """B times (m, k) @ (k, n)."""
    left, right = tensor(call, "self"), tensor(call, "mat2")
    (b, m, k), n = left.shape, right.shape[-1]
    flops = multiply_adds(b * m * k * n, left)
    return Price(flops=flops, matmul_flops=flops)


@price_of("aten.baddbmm", "aten.addbmm", kind=Kind.MATMUL)
def baddbmm(call: OpSignature) -> Price:
    """B times (m, k) @ (k, n), and one addition per product element."""
    left, right = tensor(call, "batch1"), tensor(call, "batch2")
    (b, m, k), n = left.shape, right.shape[-1]
    return _with_bias(call, multiply_adds(b * m * k * n, left), added=b * m * n)


@price_of("aten.mv", kind=Kind.MATMUL)
def mv(call: OpSignature) -> Price:
    """(m, k) @ (k): m dot products of length k."""
    left = tensor(call, "self")
    flops = multiply_adds(left.elements, left)
    return Price(flops=flops, matmul_flops=flops)


@price_of("aten.addmv", kind=Kind.MATMUL)
def addmv(call: OpSignature) -> Price:
    """Bias + (m, k) @ (k)."""
    left = tensor(call, "mat")
    return _with_bias(call, multiply_adds(left.elements, left), added=left.shape[0])


@price_of("aten.dot", "aten.vdot", kind=Kind.MATMUL)
def dot(call: OpSignature) -> Price:
    """(k) . (k)."""
    left = tensor(call, "self")
    flops = multiply_adds(left.elements, left)
    return Price(flops=flops, matmul_flops=flops)


@price_of("aten.addr", "aten.ger", "aten.outer", kind=Kind.MATMUL)
def outer(call: OpSignature) -> Price:
    """beta*bias + alpha*(m) x (n): one multiply-add per output element, and one multiplication per factor but 1."""
    made = output(call)
    flops = multiply_adds(made.elements, made)
    more = _factors(call, made.elements)
    return Price(flops=flops + more, matmul_flops=flops, reads=_reads_with_bias(call))


@price_of("aten.linear", "aten.mkldnn_linear", kind=Kind.MATMUL)
def linear(call: OpSignature) -> Price:
    """(..., k) @ (n, k)^T + bias."""
    given, made = tensor(call, "input", "self"), output(call)
    flops = multiply_adds(made.elements * given.shape[-1], given)
    bias = additions(made.elements, made) if optional_tensor(call, "bias") else 0
    return Price(flops=flops + bias, matmul_flops=flops)


@price_of("aten.linear_backward", kind=Kind.MATMUL)
def linear_backward(call: OpSignature) -> Price:
    """Gradients of input and weight: two products as large as the forward one."""
    given, gradient = tensor(call, "self"), tensor(call, "grad_output")
    flops = 2 * multiply_adds(gradient.elements * given.shape[-1], given)
    return Price(flops=flops, matmul_flops=flops)


@price_of("aten._grouped_mm", "aten._scaled_grouped_mm", "aten._scaled_grouped_mm_v2", kind=Kind.MATMUL)
def grouped_mm(call: OpSignature) -> Price:
    """Rows sorted by group, each row with its group's matrix: every row is multiplied once, whatever the groups.

    (m, k) @ (g, k, n), (g, m, k) @ (k, n) and (m, k) @ (k, n) -> (g, m, n) are m*k*n multiply-adds;
    (g, m, k) @ (g, k, n) is g times as much. Of g matrices at most m are read.
    """
    left, right = tensor(call, "self", "mat_a"), tensor(call, "mat2", "mat_b")
    (m, k), n = left.shape[-2:], right.shape[-1]
    batch = left.shape[0] if len(left.shape) > _MATRIX and len(right.shape) > _MATRIX else 1
    flops = multiply_adds(batch * m * k * n, left)
    bias = optional_tensor(call, "bias")
    extra = output(call).elements if bias else 0
    reads = list(reads_of(call))
    if len(left.shape) == _MATRIX and len(right.shape) > _MATRIX:
        groups = right.shape[0]
        reads[1] = bytes_of(right) * min(groups, m) // max(groups, 1)
    return Price(flops=flops + extra, matmul_flops=flops, reads=tuple(reads))


@price_of("aten._cdist_forward", "aten._euclidean_dist", kind=Kind.MATMUL)
def pairwise_distance(call: OpSignature) -> Price:
    """All distances between m and n points in k dimensions: subtract, square, add per coordinate, one root each."""
    left, made = tensor(call, "x1"), output(call)
    return Price(flops=3 * made.elements * left.shape[-1] + made.elements)


@price_of("aten._cdist_backward", "aten._pdist_backward", kind=Kind.MATMUL)
def pairwise_distance_backward(call: OpSignature) -> Price:
    """Difference, scale and sum per coordinate of each distance; in own distances for both points of a pair."""
    gradient, points = tensor(call, "grad"), tensor(call, "x1", "self")
    return Price(flops=(4 if "pdist" in call.op else 3) * gradient.elements * points.shape[-1])


@price_of("aten._pdist_forward", kind=Kind.MATMUL)
def own_distances(call: OpSignature) -> Price:
    """As pairwise_distance, each pair of rows once."""
    made = output(call)
    return Price(flops=3 * made.elements * tensor(call, "self").shape[-1] + made.elements)


@price_of("aten._trilinear", kind=Kind.MATMUL)
def trilinear(call: OpSignature) -> Price:
    """Three factors multiplied element by element over their common expanded shape, then summed."""
    factors = [tensor(call, name) for name in ("i1", "i2", "i3")]
    expands = [_dimensions(call, name) for name in ("expand1", "expand2", "expand3")]
    rank = len(factors[0].shape) + len(expands[0])
    full = [_expanded(spec.shape, dims, rank) for spec, dims in zip(factors, expands, strict=True)]
    flops = multiply_adds(prod(map(max, *full)), factors[0])
    return Price(flops=flops + flops // 2, matmul_flops=flops)


def _dimensions(call: OpSignature, name: str) -> tuple[int, ...]:
    found = numbers(call, name)
    if found is None:
        msg = f"{call.op} was called without {name}"
        raise NoPriceError(msg)
    return found


def _expanded(shape: tuple[int, ...], new: tuple[int, ...], rank: int) -> list[int]:
    sizes = iter(shape)
    return [1 if dim in new else next(sizes) for dim in range(rank)]


# Matmuls with packed weights: the weight's bytes are those of its real layout, the FLOPs those of the product.


@price_of(
    "aten._weight_int8pack_mm",
    "aten._weight_int4pack_mm",
    "aten._weight_int4pack_mm_for_cpu",
    "aten._weight_int4pack_mm_with_scales_and_zeros",
    "aten._mixed_dtypes_linear",
    "bitsandbytes.gemm_4bit",
    "bitsandbytes.gemv_4bit.default",
    "bitsandbytes.int8_scaled_mm",
    "quanto.qbytes_mm",
    kind=Kind.MATMUL,
)
def packed_mm(call: OpSignature) -> Price:
    """(m, k) @ packed (n, k): m*n dot products of length k; scales and zeros are read as they lie."""
    left, made = tensor(call, "self", "input", "A"), output(call)
    flops = multiply_adds(made.elements * left.shape[-1], made)
    return Price(flops=flops + (made.elements if optional_tensor(call, "bias") else 0), matmul_flops=flops)


@price_of("aten._dyn_quant_matmul_4bit", kind=Kind.MATMUL)
def dynamic_packed_mm(call: OpSignature) -> Price:
    """As packed_mm, with the input quantised on the fly: scale and round each element."""
    left, made = tensor(call, "inp"), output(call)
    flops = multiply_adds(made.elements * left.shape[-1], made)
    return Price(flops=flops + 2 * left.elements, matmul_flops=flops)


@price_of(
    "quantized_decomposed.quantize_per_tensor",
    "quantized_decomposed.quantize_per_channel",
    "quantized_decomposed.quantize_per_token",
    "aten.quantize_per_tensor",
    "aten.quantize_per_channel",
    "aten.quantize_per_tensor_dynamic",
    "quanto.quantize_affine",
    "quanto.quantize_symmetric",
    kind=Kind.POINTWISE,
)
def quantize(call: OpSignature) -> Price:
    """Scale, shift, round, clamp (two) per element."""
    return Price(flops=5 * output(call).elements)


@price_of(
    "quantized_decomposed.dequantize_per_tensor",
    "quantized_decomposed.dequantize_per_channel",
    "quantized_decomposed.dequantize_per_token",
    "aten.dequantize",
    "quanto.unpack",  # which shifts and masks
    kind=Kind.POINTWISE,
)
def dequantize(call: OpSignature) -> Price:
    """Shift and scale per element."""
    return Price(flops=2 * output(call).elements)


@price_of("bitsandbytes.dequantize_4bit.default", "bitsandbytes.dequantize_blockwise.default", kind=Kind.POINTWISE)
def look_up_and_scale(call: OpSignature) -> Price:
    """Scale what a table has for each element."""
    return Price(flops=output(call).elements)


@price_of("aten._choose_qparams_per_tensor", "quantized_decomposed.choose_qparams", kind=Kind.REDUCTION)
def choose_scale(call: OpSignature) -> Price:
    """Smallest and largest element."""
    return Price(flops=2 * call.input_specs[0].elements)


@price_of(
    "aten.fake_quantize_per_tensor_affine_cachemask",
    "aten.fake_quantize_per_channel_affine_cachemask",
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "aten._fake_quantize_learnable_per_tensor_affine",
    "aten._fake_quantize_learnable_per_channel_affine",
    kind=Kind.POINTWISE,
)
def fake_quantize(call: OpSignature) -> Price:
    """Quantise (5) and back (2) per element."""
    return Price(flops=7 * output(call).elements)


@price_of("aten._fused_moving_avg_obs_fq_helper", "aten._fused_moving_avg_obs_fq_helper_functional",
          kind=Kind.POINTWISE)  # fmt: skip
def observed_fake_quantize(call: OpSignature) -> Price:
    """As fake_quantize, and smallest and largest element of the input."""
    return Price(flops=9 * output(call).elements)


@price_of("aten._fake_quantize_learnable_per_tensor_affine_backward",
          "aten._fake_quantize_learnable_per_channel_affine_backward", kind=Kind.POINTWISE)  # fmt: skip
def fake_quantize_backward(call: OpSignature) -> Price:
    """Quantised again (5); gradients of input (1), scale (3) and zero (2)."""
    return Price(flops=11 * output(call).elements)
