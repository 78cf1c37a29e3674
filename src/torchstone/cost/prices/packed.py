"""Matmuls with packed weights: the weight's bytes are those of its real layout, the FLOPs those of the product."""

from torchstone.cost.arguments import output, tensor
from torchstone.cost.prices.matmul import multiply_adds
from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature


@price_of(
    "aten._weight_int8pack_mm",
    "aten._weight_int4pack_mm",
    "aten._weight_int4pack_mm_for_cpu",
    "aten._weight_int4pack_mm_with_scales_and_zeros",
    "aten._mixed_dtypes_linear",
    kind=Kind.MATMUL,
)
def packed_mm(call: OpSignature) -> Price:
    """(m, k) @ packed (n, k): m*n dot products of length k; scales and zeros are read as they lie."""
    left, made = tensor(call, "self", "input"), output(call)
    flops = multiply_adds(made.elements * left.shape[-1], made)
    return Price(flops=flops, matmul_flops=flops)


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
    kind=Kind.POINTWISE,
)
def dequantize(call: OpSignature) -> Price:
    """Shift and scale per element."""
    return Price(flops=2 * output(call).elements)


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
