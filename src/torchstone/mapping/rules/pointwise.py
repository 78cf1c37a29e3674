"""Pointwise ops: most have a counterpart of the same name."""

from __future__ import annotations

import math

from torchstone.mapping.table import Library, NotMappedError, Number, Tensor, maps, without_counterpart

_SAME_NAME = (
    "relu", "silu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "neg", "abs", "cos", "sin", "erf", "erfc",
    "reciprocal", "floor", "ceil", "log1p", "expm1", "square", "round", "trunc", "log2", "log10", "tan", "atan",
    "asin", "acos", "sinh", "cosh", "exp2", "erfinv", "isnan", "isinf", "isfinite", "hardswish", "hardsigmoid", "mish",
    "relu6", "selu", "acosh", "asinh", "atanh", "digamma", "lgamma", "logical_not",
)  # fmt: skip


def _same(name: str) -> Tensor:
    def rule(tt: Library, self: Tensor, **_: object) -> Tensor:
        return getattr(tt, name)(self)

    return rule


for _name in _SAME_NAME:
    maps(f"aten.{_name}")(_same(_name))


@maps("aten.sign")
def sign(tt: Library, self: Tensor) -> Tensor:
    """In floating point."""
    return tt.sign(tt.as_float(self))


@maps("aten.gelu")
def gelu(tt: Library, self: Tensor, approximate: str = "none") -> Tensor:
    """The tanh form is ttnn's fast mode."""
    return tt.gelu(self, fast_and_approximate_mode=approximate == "tanh")


@maps("aten.leaky_relu")
def leaky_relu(tt: Library, self: Tensor, negative_slope: float = 0.01) -> Tensor:
    """The slope has another name."""
    return tt.leaky_relu(self, negative_slope=negative_slope)


@maps("aten.elu")
def elu(tt: Library, self: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """With its usual scales alone."""
    if (scale, input_scale) != (1, 1):
        msg = "elu with scales"
        raise NotMappedError(msg)
    return tt.elu(self, alpha=alpha)


@maps("aten.softplus")
def softplus(tt: Library, self: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """The same arguments."""
    return tt.softplus(self, beta=beta, threshold=threshold)


@maps("aten.hardtanh", "aten.clamp", "aten.clamp_min", "aten.clamp_max")
def clamp(tt: Library, self: Tensor, **limits: object) -> Tensor:
    """The limits under the names of any of these ops."""
    low = limits.get("min", limits.get("min_val"))
    high = limits.get("max", limits.get("max_val"))
    if tt.is_tensor(low) or tt.is_tensor(high):
        found = self if low is None else tt.maximum(self, low)
        return found if high is None else tt.minimum(found, high)
    return tt.clamp(self, min=low, max=high)


@maps("aten.log_sigmoid_forward")
def log_sigmoid(tt: Library, self: Tensor) -> Tensor:
    """The second result serves the backward pass alone."""
    return tt.log_sigmoid(self), self


@maps("aten.glu")
def glu(tt: Library, self: Tensor, dim: int = -1) -> Tensor:
    """Half of it gates the other half."""
    first, second = halves(tt, self, dim)
    return tt.multiply(first, tt.sigmoid(second))


def halves(tt: Library, tensor: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The two halves of a tensor along a dimension."""
    dim %= len(tensor.shape)
    starts, ends = [0] * len(tensor.shape), list(tensor.shape)
    middle = tensor.shape[dim] // 2
    first = tt.slice(tensor, starts, [*ends[:dim], middle, *ends[dim + 1 :]])
    second = tt.slice(tensor, [*starts[:dim], middle, *starts[dim + 1 :]], ends)
    return first, second


# --- Two operands ---


def _scaled(tt: Library, other: Tensor, alpha: Number) -> Tensor:
    if alpha == 1:
        return other
    return tt.multiply(other, alpha) if tt.is_tensor(other) else other * alpha


@maps("aten.add")
def add(tt: Library, self: Tensor, other: Tensor, alpha: Number = 1) -> Tensor:
    """Alpha scales the second operand."""
    return tt.add(self, _scaled(tt, other, alpha))


@maps("aten.sub")
def sub(tt: Library, self: Tensor, other: Tensor, alpha: Number = 1) -> Tensor:
    """Alpha scales the second operand."""
    return tt.subtract(self, _scaled(tt, other, alpha))


@maps("aten.rsub")
def rsub(tt: Library, self: Tensor, other: Tensor, alpha: Number = 1) -> Tensor:
    """The operands change places."""
    return tt.rsub(_scaled(tt, self, alpha), other)


@maps("aten.mul")
def mul(tt: Library, self: Tensor, other: Tensor) -> Tensor:
    """Under its long name; complex numbers by their parts, which ttnn keeps as a last dimension of two."""
    if not tt.is_tensor(other) and "complex" in self.dtype and not isinstance(other, complex):
        return tt.as_complex(tt.multiply(tt.as_real(self), other))
    if tt.is_tensor(other) and "complex" in self.dtype + other.dtype:
        if self.dtype != other.dtype:
            msg = "a product of a complex and a real number"
            raise NotMappedError(msg)
        (a, b), (c, d) = complex_parts(tt, self), complex_parts(tt, other)
        real = tt.subtract(tt.multiply(a, c), tt.multiply(b, d))
        return tt.as_complex(tt.concat([real, tt.add(tt.multiply(a, d), tt.multiply(b, c))], len(real.shape) - 1))
    return tt.multiply(self, other)


def complex_parts(tt: Library, tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The real and the imaginary part, each with a last dimension of one."""
    return halves(tt, tt.as_real(tensor), -1)


@maps("aten.polar")
def polar(tt: Library, abs: Tensor, angle: Tensor) -> Tensor:
    """Cosine and sine of the angle, each times the radius, side by side."""
    parts = [tt.multiply(abs, tt.cos(angle)), tt.multiply(abs, tt.sin(angle))]
    wide = [tt.reshape(one, [*one.shape, 1]) for one in parts]
    return tt.as_complex(tt.concat(wide, len(wide[0].shape) - 1))


@maps("aten.div", "aten.true_divide")
def div(tt: Library, self: Tensor, other: Tensor, rounding_mode: str | None = None) -> Tensor:
    """Rounding is a step of its own."""
    if not tt.is_tensor(other) and rounding_mode is None:
        return tt.multiply(self, 1.0 / other) if other else tt.div(self, other)
    found = tt.div(self, other)
    return found if rounding_mode is None else tt.floor(found) if rounding_mode == "floor" else tt.trunc(found)


@maps("aten.floor_divide")
def floor_divide(tt: Library, self: Tensor, other: Tensor) -> Tensor:
    """Down to the next integer."""
    return tt.floor(tt.div(self, other))


@maps("aten.pow")
def power(tt: Library, self: Tensor, exponent: Number) -> Tensor:
    """Squares and roots have ops of their own."""
    if not tt.is_tensor(exponent):
        special = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
        if exponent in special:
            return getattr(tt, special[exponent])(self)
        return tt.pow(self, float(exponent))
    if tt.is_tensor(self):
        return tt.pow(self, tt.as_float(exponent))
    base = tt.full_like(tt.as_float(exponent), float(self))
    return tt.pow(base, tt.as_float(exponent))


def _binary(name: str) -> Tensor:
    def rule(tt: Library, self: Tensor, other: Tensor, **_: object) -> Tensor:
        return getattr(tt, name)(self, other)

    return rule


for _aten, _ttnn in (
    ("minimum", "minimum"), ("maximum", "maximum"), ("eq", "eq"), ("ne", "ne"), ("lt", "lt"), ("le", "le"),
    ("gt", "gt"), ("ge", "ge"), ("logical_and", "logical_and"), ("logical_or", "logical_or"),
    ("logical_xor", "logical_xor"), ("remainder", "remainder"), ("fmod", "fmod"), ("atan2", "atan2"),
):  # fmt: skip
    maps(f"aten.{_aten}")(_binary(_ttnn))


def _bitwise(name: str) -> Tensor:
    def rule(tt: Library, self: Tensor, other: Tensor) -> Tensor:
        logical = self.dtype == "bool"  # booleans are numbers on the device
        return getattr(tt, f"{'logical' if logical else 'bitwise'}_{name}")(self, other)

    return rule


for _word in ("and", "or", "xor"):
    maps(f"aten.bitwise_{_word}", f"aten.__{_word}__")(_bitwise(_word))


@maps("aten.bitwise_not")
def bitwise_not(tt: Library, self: Tensor) -> Tensor:
    """Of booleans it is a logical one."""
    return tt.logical_not(self) if self.dtype == "bool" else tt.bitwise_not(self)


@maps("aten.where")
def where(tt: Library, condition: Tensor, self: Tensor = None, other: Tensor = None) -> Tensor:
    """The same op; a call with the condition alone gives indices, which no ttnn op does."""
    if self is None:
        msg = "where with a condition alone: the size of its result depends on values"
        raise NotMappedError(msg)
    return tt.where(condition, self, other)


@maps("aten.masked_fill")
def masked_fill(tt: Library, self: Tensor, mask: Tensor, value: Number) -> Tensor:
    """A choice between a value and the tensor."""
    return tt.where(tt.broadcast_to(mask, self.shape), value, self)


@maps("aten.addcmul")
def addcmul(tt: Library, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number = 1) -> Tensor:
    """The same op."""
    return tt.addcmul(self, tensor1, tensor2, value=value)


@maps("aten.addcdiv")
def addcdiv(tt: Library, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number = 1) -> Tensor:
    """The same op."""
    return tt.addcdiv(self, tensor1, tensor2, value=value)


@maps("aten.lerp")
def lerp(tt: Library, self: Tensor, end: Number, weight: Tensor) -> Tensor:
    """The same op."""
    return tt.lerp(self, end, weight)


@maps("aten.threshold")
def threshold(tt: Library, self: Tensor, threshold: float, value: float) -> Tensor:
    """The same op."""
    return tt.threshold(self, threshold, value)


@maps("aten.native_dropout", "aten.dropout")
def dropout(tt: Library, input: Tensor, p: float = 0.0, train: bool | None = False) -> Tensor:
    """Nothing, in inference."""
    if train and p:
        msg = "dropout in training draws random numbers"
        raise NotMappedError(msg)
    return input


@maps("aten.xlogy")
def xlogy(tt: Library, self: Tensor, other: Tensor) -> Tensor:
    """Zero where the factor is, whatever its logarithm would be."""
    tensor = self if tt.is_tensor(self) else tt.full_like(other, float(self))
    logarithm = tt.log(other) if tt.is_tensor(other) else math.log(other) if other else -math.inf
    return tt.where(tt.eq(tensor, 0.0), tt.multiply(tensor, 0.0), tt.multiply(tensor, logarithm))


without_counterpart("aten.bernoulli", "random numbers")
