"""Convolutions: every output element is a dot product over the kernel and the input channels of its group."""

from math import prod

from torchstone.cost.arguments import flag, optional_tensor, output, tensor, value_of
from torchstone.cost.prices.matmul import multiply_adds
from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Items

_CHANNELS = 2  # the dimensions before the picture: batch and channels


def convolution_flops(given: TensorSpec, weight: TensorSpec, made: TensorSpec, *, transposed: bool) -> int:
    """Weight is (c_out, c_in/groups, *kernel); transposed, it is (c_in, c_out/groups, *kernel).

    Each output position (transposed: each input position) of each picture meets the whole weight once;
    stride, padding and dilation only decide how many positions there are.
    """
    where = given if transposed else made
    batched = len(where.shape) == len(weight.shape)
    batch = where.shape[0] if batched else 1
    positions = prod(where.shape[_CHANNELS if batched else 1 :])
    return multiply_adds(batch * positions * weight.elements, given)


@price_of(
    "aten.convolution",
    "aten._convolution",
    "aten.convolution_overrideable",
    "aten.cudnn_convolution",
    "aten.cudnn_convolution_transpose",
    "aten.miopen_convolution",
    "aten.mkldnn_convolution",
    "aten._slow_conv2d_forward",
    "aten.slow_conv3d_forward",
    "aten._conv_depthwise2d",
    "aten.conv_depthwise3d",
    "aten.slow_conv_transpose2d",
    "aten.slow_conv_transpose3d",
    "aten.slow_conv_dilated2d",
    "aten.slow_conv_dilated3d",
    "aten.conv1d",
    "aten.conv2d",
    "aten.conv3d",
    kind=Kind.CONVOLUTION,
)
def convolution(call: OpSignature) -> Price:
    """One dot product per output element, one addition more with a bias."""
    given, weight, made = tensor(call, "input", "self"), tensor(call, "weight"), output(call)
    flops = convolution_flops(given, weight, made, transposed=flag(call, "transposed") or "transpose" in call.op)
    bias = made.elements if optional_tensor(call, "bias") else 0
    return Price(flops=flops + bias, matmul_flops=flops)


@price_of("aten.convolution_backward", "aten.convolution_backward_overrideable", kind=Kind.CONVOLUTION)
def convolution_backward(call: OpSignature) -> Price:
    """Gradients of input and of weight: each as much as the forward one; of the bias: one sum."""
    gradient, given, weight = tensor(call, "grad_output"), tensor(call, "input"), tensor(call, "weight")
    forward = convolution_flops(given, weight, gradient, transposed=flag(call, "transposed"))
    of_input, of_weight, of_bias = _output_mask(call)
    flops = forward * (of_input + of_weight)
    return Price(flops=flops + gradient.elements * of_bias, matmul_flops=flops)


def _output_mask(call: OpSignature) -> tuple[bool, bool, bool]:
    mask = value_of(call, "output_mask")
    wanted = mask.items if isinstance(mask, Items) else (True, True, True)
    return wanted[0] is True, wanted[1] is True, wanted[2] is True


@price_of("aten.conv_tbc", kind=Kind.CONVOLUTION)
def conv_tbc(call: OpSignature) -> Price:
    """(time, batch, c_in) with weight (kernel, c_in, c_out)."""
    made, (kernel, c_in, _) = output(call), tensor(call, "weight").shape
    flops = multiply_adds(made.elements * kernel * c_in, made)
    return Price(flops=flops + made.elements, matmul_flops=flops)
