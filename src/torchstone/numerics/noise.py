"""How far correct implementations are from the exact result: run the code with legal differences, and measure.

A correct implementation may round each op's result another way, add in another order and use another exp. `NoisyMode`
runs the same code with such differences, drawn at random: every op's result is moved by as much as a correct kernel may
be off, then rounded to the number format. This is Monte Carlo arithmetic, op by op. The distances of some such runs
from the float64 result are the *noise floor* of the code for that format: a candidate whose distance is a multiple of
it is not explained by rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from torchstone.numerics.dispatch import KernelOp, KernelOpMode, OpArguments, OpKeywords, op_name
from torchstone.numerics.number_formats import float_format, round_to, spacing
from torchstone.numerics.profiles import Profile

# --- What a correct kernel may be off, in steps of float32: the limits of the OpenCL specification, rounded up ---

_ULP = {
    "exp": 3, "exp2": 3, "expm1": 3, "log": 3, "log2": 3, "log10": 3, "log1p": 2, "sin": 4, "cos": 4, "tan": 5,
    "tanh": 5, "sinh": 4, "cosh": 4, "asin": 4, "acos": 4, "atan": 5, "atan2": 6, "erf": 16, "erfc": 16, "erfinv": 16,
    "pow": 16, "rsqrt": 2, "sqrt": 3, "reciprocal": 2.5, "div": 2.5, "sigmoid": 6, "silu": 6, "gelu": 16, "mish": 10,
    "softplus": 6, "elu": 4, "selu": 4, "celu": 4, "hardswish": 3, "logsumexp": 6, "_softmax": 6, "_log_softmax": 6,
    "lgamma": 16, "digamma": 16, "grid_sampler_2d": 4,
}  # fmt: skip
_MOVES = frozenset({  # ops that move numbers or choose among them: no kernel rounds
    "abs", "alias", "amax", "amin", "argmax", "argmin", "argsort", "as_strided", "cat", "clamp", "clamp_min",
    "clamp_max", "clone", "constant_pad_nd", "copy", "copy_", "cummax", "cummin", "detach", "embedding", "empty",
    "empty_like", "expand", "eye", "fill", "fill_", "flip", "full", "full_like", "gather", "index", "index_copy",
    "index_put", "index_put_", "index_select", "lift_fresh", "masked_fill", "masked_fill_", "masked_scatter", "max",
    "max_pool2d_with_indices", "max_pool3d_with_indices", "maximum", "median", "min", "minimum", "narrow_copy",
    "neg", "new_empty", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "permute", "pixel_shuffle",
    "pixel_unshuffle", "reflection_pad1d", "reflection_pad2d", "relu", "relu_", "repeat", "repeat_interleave",
    "replication_pad2d", "roll", "rot90", "scalar_tensor", "scatter", "scatter_", "select_scatter", "sign",
    "slice_scatter", "sort", "split_with_sizes_copy", "stack", "topk", "tril", "triu", "unfold_copy",
    "upsample_nearest2d", "where", "zero_", "zeros", "zeros_like", "_to_copy", "_unsafe_view", "_reshape_copy",
    "arange", "linspace", "threshold", "hardtanh", "unique2", "_unique2", "nonzero", "real", "imag", "view_as_real",
    "view_as_complex", "_conj", "resolve_conj", "round", "floor", "ceil", "trunc", "frac", "fmod", "sgn", "heaviside",
    "nan_to_num", "copysign", "ldexp", "frexp", "fmax", "fmin", "aminmax", "kthvalue", "nanmedian", "mode", "take",
    "masked_select", "_index_put_impl", "adaptive_max_pool2d", "adaptive_max_pool3d", "reflection_pad3d",
    "replication_pad1d", "replication_pad3d", "upsample_nearest1d", "upsample_nearest3d", "channel_shuffle", "im2col",
    "diag_embed", "one_hot", "hardshrink", "relu6", "max_unpool2d", "tril_indices", "triu_indices",
})  # fmt: skip
_MATRIX_ARGUMENT = {
    "mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1, "addbmm": 1, "mv": 0, "addmv": 1, "dot": 0, "linear": 0,
    "_grouped_mm": 0,
}  # fmt: skip
_WEIGHT_ARGUMENT = {"convolution": 1, "_convolution": 1}
_REDUCTIONS = frozenset({
    "sum", "mean", "var", "std", "var_mean", "prod", "norm", "linalg_vector_norm", "cumsum", "native_layer_norm",
    "native_group_norm", "_fused_rms_norm", "native_batch_norm", "_native_batch_norm_legit", "avg_pool2d",
    "_adaptive_avg_pool2d", "_trilinear", "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
})  # fmt: skip
_ADDED_AT_ONCE = 16  # terms: kernels add blocks of them, then the blocks one after the other
_FEWEST_STEPS = 2.0  # float32 steps that any sum may be off: its result varies with the order of additions


def _summed(name: str, args: Any, result: object) -> int:
    """How many products or terms each element of a result is the sum of; 1 where nothing is summed."""
    tensors = [one for one in args if isinstance(one, Tensor)]
    if name in _MATRIX_ARGUMENT:
        return int(args[_MATRIX_ARGUMENT[name]].shape[-1])
    if name in _WEIGHT_ARGUMENT:
        weight = args[_WEIGHT_ARGUMENT[name]]
        return int(weight.numel() // max(1, weight.shape[0]))
    if name in _REDUCTIONS and tensors and isinstance(result, Tensor):
        return max(2, tensors[0].numel() // max(1, result.numel()))
    if name in _REDUCTIONS:
        return max(2, tensors[0].shape[-1]) if tensors and tensors[0].dim() else 2
    return 1


@contextmanager
def rounded_buffers(module: nn.Module, number_format: str | None) -> Iterator[None]:
    """Round float buffers to a narrower format while open, as `model.bfloat16()` does with tables and statistics."""
    before = [(one, one.detach().clone()) for one in module.buffers() if number_format and _is_plain_float(one)]
    try:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(round_to(value, _narrower(number_format, value)))
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


class NoisyMode(KernelOpMode):
    """Runs ops as another correct implementation might: their results are moved within what is legal, and rounded.

    Only what depends on weights or on `varying`, the arguments, is moved: tables that code makes from integers, such as
    the angles of a rotary embedding or the buckets of relative positions, are computed once, in float32, by everybody.
    """

    def __init__(self, profile: Profile, seed: int, varying: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self._profile = profile
        self._random = torch.Generator().manual_seed(seed)
        self._varies: WeakIdKeyDictionary = WeakTensorKeyDictionary()
        self._weights: WeakIdKeyDictionary = (
            WeakTensorKeyDictionary()
        )  # views of parameters: nn.Linear transposes its own
        for tensor in varying:
            self._varies[tensor] = True

    def run_op(self, func: KernelOp, args: OpArguments, kwargs: OpKeywords) -> object:
        """Run an op on rounded arguments and move its result."""
        schema = getattr(func, "_schema", None)
        taken = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
        if schema is None or not any(map(self._is_varying, taken)):
            return func(*args, **kwargs)
        name = op_name(func).split(".")[1].removesuffix("_")
        is_view = any(one.alias_info and not one.alias_info.is_write for one in schema.returns)
        if self._profile.format and not schema.is_mutable and not is_view:
            args, kwargs = tree_map(self._read, (args, kwargs))
        result = func(*args, **kwargs)
        if is_view and isinstance(result, Tensor) and any(map(self._is_weight, taken)):
            self._weights[result] = True
        if not is_view and name not in _MOVES:
            summed = _summed(name, args, result)
            result = tree_map(lambda one: self._move(one, name, summed, in_place=schema.is_mutable), result)
        for one in tree_flatten(result)[0]:
            if isinstance(one, Tensor) and (one.is_floating_point() or one.is_complex()):
                self._varies[one] = True
        return result

    def _is_varying(self, tensor: Tensor) -> bool:
        return isinstance(tensor, nn.Parameter) or tensor in self._varies

    def _is_weight(self, tensor: Tensor) -> bool:
        return isinstance(tensor, nn.Parameter) or tensor in self._weights

    def _read(self, value: object) -> object:
        if not isinstance(value, Tensor) or not _is_plain_float(value):
            return value
        weights = self._profile.weights
        if weights and self._is_weight(value) and value.dim() > 1:
            return round_to(value.detach(), weights)
        return round_to(value.detach(), _narrower(self._profile.format, value))

    def _move(self, value: object, name: str, summed: int, *, in_place: bool) -> object:
        if not isinstance(value, Tensor) or not (_is_plain_float(value) or value.is_complex()):
            return value
        if value.is_complex():
            parts = self._moved(torch.view_as_real(value.resolve_conj()), name, summed)
            return torch.view_as_complex(parts.contiguous())
        moved = self._moved(value, name, summed)
        return value.copy_(moved) if in_place else moved

    def _moved(self, value: Tensor, name: str, summed: int) -> Tensor:
        own = float_format(value.dtype)
        target = _narrower(self._profile.format, value)
        wide = value.double()
        moved = wide * (1 + self._steps(name, target) * spacing(target) * self._drawn(value.shape))
        if summed > 1:  # an element that is small because its terms cancel is off by as much as the others
            typical = float(wide.square().mean().sqrt()) if wide.numel() else 0.0
            adds_in = "float64" if own == "float64" else "float32"
            at_once = 1 if own == "float64" else _ADDED_AT_ONCE  # eager is not exact either: both errors count
            steps = max(_FEWEST_STEPS, sqrt(summed / at_once) / 2)
            moved = moved + steps * spacing(adds_in) * typical * self._drawn(value.shape)
        rounded = round_to(moved, target) if target != own else moved
        return rounded.to(value.dtype)

    def _drawn(self, shape: torch.Size) -> Tensor:
        return torch.rand(shape, generator=self._random, dtype=torch.float64).mul_(2).sub_(1)

    def _steps(self, name: str, target: str) -> float:
        """By how many steps of the format a result may be off, beside being rounded."""
        if spacing(target) > spacing("float32"):  # a narrow format: kernels compute in float32, and round once
            return self._profile.roundings
        return _ULP.get(name, 1.0) if self._profile.libraries else 1.0


def _is_plain_float(value: Tensor) -> bool:
    return value.is_floating_point() and value.layout == torch.strided and not value.is_quantized


def _narrower(name: str | None, value: Tensor) -> str:
    """The coarser of a format and the one that the tensor has."""
    own = float_format(value.dtype)
    return own if name is None or spacing(own) >= spacing(name) else name
