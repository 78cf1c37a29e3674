"""Pointwise ops, random numbers and optimizer steps: a number of FLOPs per element of the result."""

from collections.abc import Mapping

from torchstone.cost.registry import Price, bytes_of, flag, optional_tensor, price_of, tensor, tensors, value_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.value import tensors_in

# Pointwise ops: FLOPs per element of the result. One for each elementary function: + - * /, comparison, min,
# max, rounding, logic, exp, log, root, power, sine, erf ... Anything made of several costs their sum, so that silu(x)
# costs what x * sigmoid(x) does. Selecting and copying is free.


_ELEMENTARY = (
    "abs", "acos", "acosh", "add", "angle", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clamp_max",
    "clamp_min", "copysign", "cos", "cosh", "digamma", "div", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "eq",
    "floor", "floor_divide", "fmax", "fmin", "fmod", "frac", "ge", "gt", "hypot", "i0", "igamma", "igammac",
    "isinf", "isnan", "isposinf", "isneginf", "isfinite", "le", "lgamma", "log", "log10", "log1p", "log2",
    "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "ne", "neg",
    "nextafter", "polygamma", "pow", "reciprocal", "relu", "remainder", "round", "rsqrt", "rsub", "sgn", "sign",
    "signbit", "sin", "sinc", "sinh", "special_bessel_j0", "special_bessel_j1", "special_erfcx", "special_i0e",
    "special_i1", "special_i1e", "special_log_ndtr", "special_ndtri", "special_zeta", "sqrt", "sub", "square",
    "tan", "tanh", "threshold", "trunc", "xlogy", "special_xlog1py", "__and__", "__or__", "__xor__", "__lshift__",
    "__rshift__", "__ilshift__", "__irshift__", "__ixor__", "lcm", "mvlgamma", "special_airy_ai",
    "special_bessel_y0", "special_bessel_y1", "special_chebyshev_polynomial_t", "special_chebyshev_polynomial_u",
    "special_chebyshev_polynomial_v", "special_chebyshev_polynomial_w", "special_hermite_polynomial_h",
    "special_hermite_polynomial_he", "special_laguerre_polynomial_l", "special_legendre_polynomial_p",
    "special_modified_bessel_i0", "special_modified_bessel_i1", "special_modified_bessel_k0",
    "special_modified_bessel_k1", "special_scaled_modified_bessel_k0", "special_scaled_modified_bessel_k1",
    "special_shifted_chebyshev_polynomial_t", "special_shifted_chebyshev_polynomial_u",
    "special_shifted_chebyshev_polynomial_v", "special_shifted_chebyshev_polynomial_w",
    "special_spherical_bessel_j0", "conj_physical", "_conj_physical",
)  # fmt: skip

_SEVERAL = {
    "clamp": 2,  # max, min
    "clip": 2,
    "positive": 0,
    "rrelu": 2,
    "special_entr": 2,  # log, multiply
    "_add_relu": 2,
    "_masked_scale": 2,
    "rrelu_with_noise_functional": 2,
    "hardtanh": 2,
    "relu6": 2,
    "hardsigmoid": 4,  # add 3, clamp to 0..6, divide by 6
    "hardswish": 5,  # x * hardsigmoid(x)
    "sigmoid": 4,  # negate, exp, add 1, reciprocal
    "silu": 5,  # x * sigmoid(x)
    "logit": 3,  # 1 - x, divide, log
    "softplus": 4,  # scale, exp, log1p, divide
    "log_sigmoid_forward": 4,  # -softplus(-x): negate, exp, log1p, negate
    "mish": 6,  # exp, log1p, tanh, multiply; with the scale of softplus
    "gelu": 5,  # x * 0.5 * (1 + erf(x / sqrt(2)))
    "elu": 4,  # compare, exp, subtract 1, scale
    "selu": 5,
    "celu": 5,
    "leaky_relu": 2,  # compare, scale
    "rrelu_with_noise": 2,
    "_prelu_kernel": 2,
    "hardshrink": 2,
    "softshrink": 3,
    "addcmul": 3,  # scale, multiply, add
    "addcdiv": 3,
    "lerp": 3,  # subtract, scale, add
    "logaddexp": 5,  # max, difference, exp, log1p, add
    "logaddexp2": 5,
    "heaviside": 2,
    "nan_to_num": 3,  # three comparisons
    "polar": 4,  # cos, sin, two multiplications
    "complex": 0,
    "deg2rad": 1,
    "rad2deg": 1,
    "isclose": 5,
    "allclose": 6,  # isclose, and whether it holds for all
    "where": 0,  # selects
    "masked_fill": 0,
    "dropout": 2,
    "native_dropout": 2,  # compare, scale
    "_fused_dropout": 2,
    "gcd": 1,
    "frexp": 1,
    "ldexp": 2,
    "float_power": 1,
    "true_divide": 1,
    "divide": 1,
    "multiply": 1,
    "subtract": 1,
}

_BACKWARD = {
    "threshold_backward": 1,
    "hardtanh_backward": 2,
    "sigmoid_backward": 3,  # g * y * (1 - y)
    "tanh_backward": 3,  # g * (1 - y * y)
    "silu_backward": 9,  # g * s * (1 + x * (1 - s)), with s = sigmoid(x)
    "gelu_backward": 11,  # g * (cdf(x) + x * pdf(x))
    "hardsigmoid_backward": 3,
    "hardswish_backward": 4,
    "softplus_backward": 4,
    "log_sigmoid_backward": 5,
    "elu_backward": 4,
    "leaky_relu_backward": 2,
    "mish_backward": 11,
    "logit_backward": 3,
    "_prelu_kernel_backward": 3,
    "native_dropout_backward": 2,
    "hardshrink_backward": 2,
    "softshrink_backward": 2,
    "rrelu_with_noise_backward": 2,
}

FLOPS_PER_ELEMENT: Mapping[str, int] = dict.fromkeys(_ELEMENTARY, 1) | _SEVERAL | _BACKWARD
_COMPLEX = {"add": 2, "sub": 2, "rsub": 2, "neg": 2, "mul": 6, "div": 11, "abs": 4, "exp": 4, "reciprocal": 5}
_WITH_ALPHA = ("add", "sub", "rsub")


_PRIMITIVE = (  # what forward-mode derivatives of torch.func are made of
    "abs", "add", "cos", "div", "eq", "erf", "exp", "ge", "gt", "le", "log", "lt", "maximum", "minimum", "mul", "ne",
    "neg", "pow", "reciprocal", "rsqrt", "sign", "sin", "sqrt", "sub", "tanh", "where",
)  # fmt: skip


@price_of(*(f"aten.{name}" for name in FLOPS_PER_ELEMENT), *(f"prims.{name}" for name in _PRIMITIVE),
          kind=Kind.POINTWISE)  # fmt: skip
def pointwise(call: OpSignature) -> Price:
    """The function's price, times the elements of the largest tensor: a result is as large as its inputs broadcast."""
    name = call.op.split(".")[1]
    name = name if name in FLOPS_PER_ELEMENT else name.removesuffix("_")
    per_element = FLOPS_PER_ELEMENT[name]
    if any(spec.dtype.startswith("complex") for spec in call.input_specs):
        per_element = _COMPLEX.get(name, 2 * per_element)
    return Price(flops=(per_element + _scaling(call, name)) * _elements(call))


def _elements(call: OpSignature) -> int:
    made = call.output_specs or call.input_specs
    return max((spec.elements for spec in made), default=1)


def _scaling(call: OpSignature, name: str) -> int:
    """One multiplication more where a factor stands before the second operand."""
    if name not in _WITH_ALPHA:
        return 0
    return int(any(argument.name == "alpha" and argument.value not in (1, 1.0) for argument in call.arguments))


@price_of("aten.gelu.default", kind=Kind.POINTWISE)
def gelu(call: OpSignature) -> Price:
    """Exact: x*0.5*(1 + erf(x/sqrt 2)), five. By tanh: x*0.5*(1 + tanh(c*(x + a*x^3))), nine."""
    by_tanh = any(argument.name == "approximate" and argument.value == "tanh" for argument in call.arguments)
    return Price(flops=(9 if by_tanh else FLOPS_PER_ELEMENT["gelu"]) * _elements(call))


@price_of("aten.glu", kind=Kind.POINTWISE)
def glu(call: OpSignature) -> Price:
    """A * sigmoid(b) for the two halves of the input."""
    return Price(flops=(FLOPS_PER_ELEMENT["sigmoid"] + 1) * _elements(call))


@price_of("aten.glu_backward", kind=Kind.POINTWISE)
def glu_backward(call: OpSignature) -> Price:
    """Sigmoid again, then g*s and g*a*s*(1 - s): eight per element of the gradient."""
    return Price(flops=8 * call.input_specs[0].elements)


@price_of("aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.div_.Tensor_mode", "aten.div_.Scalar_mode",
          kind=Kind.POINTWISE)  # fmt: skip
def rounded_division(call: OpSignature) -> Price:
    """Divide, then round."""
    rounded = any(argument.name == "rounding_mode" and argument.value for argument in call.arguments)
    return Price(flops=(1 + rounded) * _elements(call))


@price_of("aten.isin", kind=Kind.POINTWISE)
def isin(call: OpSignature) -> Price:
    """Each element against each test element."""
    tests = call.input_specs[-1].elements if len(call.input_specs) > 1 else 1
    return Price(flops=tests * call.input_specs[0].elements if call.input_specs else 0)


# Random numbers: counted as one operation per element drawn, by whatever generator.


_DRAWN = (
    "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "bernoulli", "uniform", "normal",
    "random", "exponential", "log_normal", "cauchy", "geometric", "poisson", "_standard_gamma", "binomial",
    "_sample_dirichlet", "normal_functional",
)  # fmt: skip


@price_of(*(f"aten.{name}" for name in _DRAWN), kind=Kind.RANDOM)
def drawn(call: OpSignature) -> Price:
    """One per element; a tensor to be filled is not read, one of probabilities is."""
    made = sum(spec.elements for spec in call.output_specs)
    packet = call.op.split(".")[1]
    filled = packet.endswith(("_", "_like")) or packet in ("uniform", "random")
    return Price(flops=made, reads=(0,) * len(call.input_specs) if filled else None)


@price_of("aten.multinomial", kind=Kind.RANDOM)
def multinomial(call: OpSignature) -> Price:
    """A running sum over the weights and one draw per sample."""
    return Price(flops=tensor(call, "self").elements + sum(spec.elements for spec in call.output_specs))


# Optimiser steps: pointwise work over parameters, gradients and states, all lists together.


_FOREACH = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh", "div",
    "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "maximum",
    "minimum", "mul", "neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub",
    "tan", "tanh", "trunc",
)  # fmt: skip
_FUSED: Mapping[str, tuple[int, tuple[str, ...]]] = {
    # FLOPs per parameter of a step without extras, and the lists that are written
    "_fused_sgd_": (2, ("self", "momentum_buffer_list")),  # scale, subtract
    "_fused_adam_": (13, ("self", "exp_avgs", "exp_avg_sqs")),  # moments (3, 4), root, correct, add; scale, divide, add
    "_fused_adamw_": (13, ("self", "exp_avgs", "exp_avg_sqs")),
    "_fused_adagrad_": (7, ("self", "state_sums")),  # square, add; root, add; scale, divide, add
}


@price_of(*(f"aten._foreach_{name}" for name in _FOREACH), kind=Kind.OPTIMISER)
def foreach(call: OpSignature) -> Price:
    """The function's price, times the elements of the lists' results; in place the list itself is written."""
    name = call.op.split(".")[1].removeprefix("_foreach_").removesuffix("_")
    changed = call.output_specs or tensors(call, "self")
    scaled = value_of(call, "alpha") not in (None, 1)
    flops = (FLOPS_PER_ELEMENT[name] + scaled) * sum(spec.elements for spec in changed)
    return Price(flops=flops, writes=tuple(bytes_of(spec) for spec in changed))


@price_of("aten._amp_foreach_non_finite_check_and_unscale", kind=Kind.OPTIMISER)
def unscale(call: OpSignature) -> Price:
    """Each gradient is checked and scaled, in place."""
    gradients = tensors(call, "self")
    flops = 2 * sum(spec.elements for spec in gradients)
    return Price(flops=flops, writes=tuple(bytes_of(spec) for spec in gradients))


@price_of("aten._foreach_zero", "aten._foreach_zero_", kind=Kind.OPTIMISER)
def foreach_zero(call: OpSignature) -> Price:
    """Written, not read."""
    return Price(reads=(0,) * len(call.input_specs), writes=tuple(bytes_of(spec) for spec in tensors(call, "self")))


@price_of(*(f"aten.{name}" for name in _FUSED), kind=Kind.OPTIMISER)
def fused(call: OpSignature) -> Price:
    """Moments, bias correction, root, division and update for each parameter; extras where they are switched on."""
    per_parameter, written = _FUSED[call.op.split(".")[1]]
    parameters = sum(spec.elements for spec in tensors(call, "self"))
    lists = (*written, *(("max_exp_avg_sqs",) if flag(call, "amsgrad") else ()))
    writes = [
        bytes_of(spec) for argument in call.arguments if argument.name in lists for spec in tensors_in(argument.value)
    ]
    return Price(flops=(per_parameter + _extras(call)) * parameters, writes=tuple(writes))


def _extras(call: OpSignature) -> int:
    """Decay scales and adds (AdamW: scales), momentum and Nesterov scale and add; then one comparison, one scale."""
    decay = (1 if "adamw" in call.op else 2) if value_of(call, "weight_decay") else 0
    momentum = 2 * (bool(value_of(call, "momentum")) + flag(call, "nesterov"))
    return decay + momentum + flag(call, "amsgrad") + (optional_tensor(call, "grad_scale") is not None)
