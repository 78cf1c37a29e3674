"""Pointwise ops: most have a counterpart of the same name."""

from __future__ import annotations

from typing import Any

from torchstone.mapping.table import NotMappedError, maps, without_counterpart

_SAME_NAME = (
    "relu", "silu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "neg", "abs", "cos", "sin", "erf", "erfc",
    "reciprocal", "floor", "ceil", "log1p", "expm1", "square", "round", "trunc", "log2", "log10", "tan", "atan",
    "asin", "acos", "sinh", "cosh", "exp2", "erfinv", "isnan", "isinf", "isfinite", "hardswish", "hardsigmoid", "mish",
    "relu6", "selu", "acosh", "asinh", "atanh", "digamma", "lgamma", "logical_not",
)  # fmt: skip


def _same(name: str) -> Any:
    def rule(tt: Any, self: Any, **_: Any) -> Any:
        return getattr(tt, name)(self)

    return rule


for _name in _SAME_NAME:
    maps(f"aten.{_name}")(_same(_name))


@maps("aten.sign")
def sign(tt: Any, self: Any) -> Any:
    """In floating point."""
    return tt.sign(tt.as_float(self))


@maps("aten.gelu")
def gelu(tt: Any, self: Any, approximate: str = "none") -> Any:
    """The tanh form is ttnn's fast mode."""
    return tt.gelu(self, fast_and_approximate_mode=approximate == "tanh")


@maps("aten.leaky_relu")
def leaky_relu(tt: Any, self: Any, negative_slope: float = 0.01) -> Any:
    """The slope has another name."""
    return tt.leaky_relu(self, negative_slope=negative_slope)


@maps("aten.elu")
def elu(tt: Any, self: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    """With its usual scales alone."""
    if (scale, input_scale) != (1, 1):
        msg = "elu with scales"
        raise NotMappedError(msg)
    return tt.elu(self, alpha=alpha)


@maps("aten.softplus")
def softplus(tt: Any, self: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """The same arguments."""
    return tt.softplus(self, beta=beta, threshold=threshold)


@maps("aten.hardtanh", "aten.clamp", "aten.clamp_min", "aten.clamp_max")
def clamp(tt: Any, self: Any, **limits: Any) -> Any:
    """The limits under the names of any of these ops."""
    low = limits.get("min", limits.get("min_val"))
    high = limits.get("max", limits.get("max_val"))
    if tt.is_tensor(low) or tt.is_tensor(high):
        found = self if low is None else tt.maximum(self, low)
        return found if high is None else tt.minimum(found, high)
    return tt.clamp(self, min=low, max=high)


@maps("aten.log_sigmoid_forward")
def log_sigmoid(tt: Any, self: Any) -> Any:
    """The second result serves the backward pass alone."""
    return tt.log_sigmoid(self), self


@maps("aten.glu")
def glu(tt: Any, self: Any, dim: int = -1) -> Any:
    """Half of it gates the other half."""
    first, second = halves(tt, self, dim)
    return tt.multiply(first, tt.sigmoid(second))


def halves(tt: Any, tensor: Any, dim: int) -> tuple[Any, Any]:
    """The two halves of a tensor along a dimension."""
    dim %= len(tensor.shape)
    starts, ends = [0] * len(tensor.shape), list(tensor.shape)
    middle = tensor.shape[dim] // 2
    first = tt.slice(tensor, starts, [*ends[:dim], middle, *ends[dim + 1 :]])
    second = tt.slice(tensor, [*starts[:dim], middle, *starts[dim + 1 :]], ends)
    return first, second


# --- Two operands ---


def _scaled(tt: Any, other: Any, alpha: Any) -> Any:
    if alpha == 1:
        return other
    return tt.multiply(other, alpha) if tt.is_tensor(other) else other * alpha


@maps("aten.add")
def add(tt: Any, self: Any, other: Any, alpha: Any = 1) -> Any:
    """Alpha scales the second operand."""
    return tt.add(self, _scaled(tt, other, alpha))


@maps("aten.sub")
def sub(tt: Any, self: Any, other: Any, alpha: Any = 1) -> Any:
    """Alpha scales the second operand."""
    return tt.subtract(self, _scaled(tt, other, alpha))


@maps("aten.rsub")
def rsub(tt: Any, self: Any, other: Any, alpha: Any = 1) -> Any:
    """The operands change places."""
    return tt.rsub(_scaled(tt, self, alpha), other)


@maps("aten.mul")
def mul(tt: Any, self: Any, other: Any) -> Any:
    """Under its long name."""
    return tt.multiply(self, other)


@maps("aten.div", "aten.true_divide")
def div(tt: Any, self: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """Rounding is a step of its own."""
    if not tt.is_tensor(other) and rounding_mode is None:
        return tt.multiply(self, 1.0 / other) if other else tt.div(self, other)
    found = tt.div(self, other)
    return found if rounding_mode is None else tt.floor(found) if rounding_mode == "floor" else tt.trunc(found)


@maps("aten.floor_divide")
def floor_divide(tt: Any, self: Any, other: Any) -> Any:
    """Down to the next integer."""
    return tt.floor(tt.div(self, other))


@maps("aten.pow")
def power(tt: Any, self: Any, exponent: Any) -> Any:
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


def _binary(name: str) -> Any:
    def rule(tt: Any, self: Any, other: Any, **_: Any) -> Any:
        return getattr(tt, name)(self, other)

    return rule


for _aten, _ttnn in (
    ("minimum", "minimum"), ("maximum", "maximum"), ("eq", "eq"), ("ne", "ne"), ("lt", "lt"), ("le", "le"),
    ("gt", "gt"), ("ge", "ge"), ("logical_and", "logical_and"), ("logical_or", "logical_or"),
    ("logical_xor", "logical_xor"), ("remainder", "remainder"), ("fmod", "fmod"), ("atan2", "atan2"),
):  # fmt: skip
    maps(f"aten.{_aten}")(_binary(_ttnn))


def _bitwise(name: str) -> Any:
    def rule(tt: Any, self: Any, other: Any) -> Any:
        logical = self.dtype == "bool"  # booleans are numbers on the device
        return getattr(tt, f"{'logical' if logical else 'bitwise'}_{name}")(self, other)

    return rule


for _word in ("and", "or", "xor"):
    maps(f"aten.bitwise_{_word}", f"aten.__{_word}__")(_bitwise(_word))


@maps("aten.bitwise_not")
def bitwise_not(tt: Any, self: Any) -> Any:
    """Of booleans it is a logical one."""
    return tt.logical_not(self) if self.dtype == "bool" else tt.bitwise_not(self)


@maps("aten.where")
def where(tt: Any, condition: Any, self: Any = None, other: Any = None) -> Any:
    """The same op; a call with the condition alone gives indices, which no ttnn op does."""
    if self is None:
        msg = "where with a condition alone: the size of its result depends on values"
        raise NotMappedError(msg)
    return tt.where(condition, self, other)


@maps("aten.masked_fill")
def masked_fill(tt: Any, self: Any, mask: Any, value: Any) -> Any:
    """A choice between a value and the tensor."""
    return tt.where(tt.broadcast_to(mask, self.shape), value, self)


@maps("aten.addcmul")
def addcmul(tt: Any, self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    """The same op."""
    return tt.addcmul(self, tensor1, tensor2, value=value)


@maps("aten.addcdiv")
def addcdiv(tt: Any, self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    """The same op."""
    return tt.addcdiv(self, tensor1, tensor2, value=value)


@maps("aten.lerp")
def lerp(tt: Any, self: Any, end: Any, weight: Any) -> Any:
    """The same op."""
    return tt.lerp(self, end, weight)


@maps("aten.threshold")
def threshold(tt: Any, self: Any, threshold: float, value: float) -> Any:
    """The same op."""
    return tt.threshold(self, threshold, value)


@maps("aten.native_dropout", "aten.dropout")
def dropout(tt: Any, input: Any, p: float = 0.0, train: bool | None = False) -> Any:
    """Nothing, in inference."""
    if train and p:
        msg = "dropout in training draws random numbers"
        raise NotMappedError(msg)
    return input


without_counterpart("aten.bernoulli", "random numbers")
without_counterpart("aten.histc", "no histogram")
