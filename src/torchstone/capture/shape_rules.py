"""Shapes of the most common ops without a detour: torch's own meta kernels, and rules for ops that have none.

PyTorch's fake tensors take an op that is called with new shapes apart in Python: a batch norm costs several
milliseconds, again for each width. Here the ops that most models consist of get a rule for the plain case, in which all
arguments are contiguous and of one element type, or go straight to their compiled meta kernel. In all other cases, and
for all other ops, the fake tensors decide. What was decided once is a recipe: a call with arguments that look the same
gets a result that looks the same, in this capture and in those that follow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from torchstone.capture.ops import reads_values, schema_of
from torchstone.capture.tables import storage_pointer
from torchstone.capture.view_rules import LISTS, VIEW_RULES, View, row_major

Arguments = tuple[Any, ...]

_aten = torch.ops.aten
_CPU = torch.device("cpu")
_META = torch.device("meta")

# Ops whose meta kernel is compiled, and gives the shape, strides and element type that the real kernel gives.
_COMPILED = frozenset({
    _aten.relu.default, _aten.silu.default, _aten.sigmoid.default, _aten.tanh.default, _aten.gelu.default,
    _aten.neg.default, _aten.exp.default, _aten.sqrt.default, _aten.rsqrt.default, _aten.sin.default, _aten.cos.default,
    _aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor, _aten.pow.Tensor_Scalar,
    _aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.cat.default, _aten.mean.dim, _aten._softmax.default,
    _aten.view.default, _aten.slice.Tensor, _aten.transpose.int, _aten.t.default, _aten.permute.default,
    _aten._unsafe_view.default, _aten.clone.default, _aten.unbind.int, _aten.split.Tensor,
    _aten.expand.default, _aten.unsqueeze.default, _aten.select.int, _aten.detach.default, _aten.alias.default,
})  # fmt: skip
_LIKE_INPUT = frozenset({
    _aten.hardswish.default, _aten.hardtanh.default, _aten.hardsigmoid.default, _aten.leaky_relu.default,
    _aten.relu.default, _aten.silu.default, _aten.sigmoid.default, _aten.tanh.default, _aten.gelu.default,
})  # fmt: skip
_IN_PLACE = frozenset({
    _aten.hardswish_.default, _aten.hardtanh_.default, _aten.hardsigmoid_.default, _aten.leaky_relu_.default,
    _aten.relu_.default, _aten.silu_.default, _aten.sigmoid_.default, _aten.tanh_.default,
    _aten.add_.Tensor, _aten.sub_.Tensor, _aten.mul_.Tensor, _aten.div_.Tensor,
})  # fmt: skip
_SPATIAL = (1, 2, 3)  # dimensions of a signal, an image, a volume
_IMAGE = 4  # dimensions of a batch of images
_MAX_POOL = _aten.max_pool2d_with_indices.default
_KEYWORDS: dict[OpOverload, frozenset[str]] = {  # that change nothing about the shape
    _aten.gelu.default: frozenset({"approximate"}),
    _aten.add.Tensor: frozenset({"alpha"}),
    _aten.sub.Tensor: frozenset({"alpha"}),
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the result of a call is made again; without any results, it is not."""

    results: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...] = ()  # new memory
    views: tuple[View, ...] = ()  # of the first argument
    container: type | None = None  # tuple or list


_NO_RECIPE = Recipe()
Looks = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides
Made = list[Looks]  # of each result


class ShapeRules:
    """Runs ops on the fake tensors of one mode by rule."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        sample = FakeTensor(mode, torch.empty(0, device=_META), _CPU)
        self._attributes = dict(vars(sample))
        unsafe = getattr(mode, "_allow_unsafe_data_ptr_access", True)
        self._guard_memory = (
            torch._C._set_warn_deprecated_on_mutable_data_ptr if unsafe else torch._C._set_throw_on_mutable_data_ptr
        )

    def fake(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A new fake tensor on the cpu."""
        return self.wrapped(torch.empty_strided(shape, strides, dtype=dtype, device=_META))

    def wrapped(self, meta: Tensor) -> Tensor:
        """A meta tensor as a fake one on the cpu: what its constructor does, without looking at each argument again."""
        made = Tensor._make_subclass(
            FakeTensor, meta, meta.requires_grad, dispatch_device=True, device_for_backend_keys=_CPU
        )
        self._guard_memory(made)
        vars(made).update(self._attributes)
        return made

    def repeated(self, recipe: Recipe, args: Arguments) -> Any:
        """The result of a call that was run before; None for a view of a tensor that is more than its looks."""
        if recipe.views:
            if args[0].is_neg() or args[0].is_inference():
                return None
            results = [self._view(args[0], *view) for view in recipe.views]
        else:
            results = [self.fake(*one) for one in recipe.results]
        return results[0] if recipe.container is None else recipe.container(results)

    def _view(self, given: Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> Tensor:
        with torch._C._DisableTorchDispatch():
            view = torch.empty(0, dtype=given.dtype, device=_META)
            view.set_(given.untyped_storage(), offset, shape, strides)
        return self.wrapped(view)

    def recipe(self, op: OpOverload, args: Arguments, given: Sequence[Tensor], result: object) -> Recipe:
        """How to make a result again that depends on nothing but the looks of the arguments.

        Only ops of torch itself, on plain fake tensors, which neither read values nor give anything but new memory:
        no views, nothing that was given, nothing that lies in memory in another way than a new tensor.
        """
        kind = type(result)
        made: Any = result if kind is tuple or kind is list else (result,)
        schema = schema_of(op)
        if schema.gives_views or reads_values(op, schema, args) or op.namespace != "aten":
            return _NO_RECIPE
        if not given or not all(map(_is_ordinary, given)):
            return _NO_RECIPE
        if not made or not all(isinstance(one, Tensor) and _is_ordinary(one) for one in made):
            return _NO_RECIPE
        memory = {storage_pointer(one) for one in (*given, *made)}
        if len(memory) != len({storage_pointer(one) for one in given}) + len(made) or not all(map(self._is_new, made)):
            return _NO_RECIPE
        looks = tuple((tuple(one.shape), tuple(one.stride()), one.dtype) for one in made)
        return Recipe(looks, container=kind if kind is tuple or kind is list else None)

    def _is_new(self, made: FakeTensor) -> bool:
        """Whether a tensor is in every way like a new one of its shape, strides and type."""
        fresh = self.fake(made.shape, made.stride(), made.dtype)
        same_memory = made.untyped_storage().nbytes() == fresh.untyped_storage().nbytes()
        same_bits = not (made.is_conj() or made.is_neg() or made.requires_grad or made.storage_offset())
        return same_memory and same_bits and vars(made) == self._attributes and made.stride() == fresh.stride()

    def run(self, op: OpOverload, args: Arguments, kwargs: Mapping[str, object], tensors: Sequence[Tensor]) -> Any:
        """The result of an op on fake tensors; None where there is no rule for the op or for these arguments."""
        if op in _IN_PLACE and _changes_nothing_but_values(args, kwargs, tensors):
            return args[0]
        recipe = self.ruled(op, args, kwargs, tensors)
        made = None if recipe is None else self.repeated(recipe, args)
        return self._run_compiled(op, args, kwargs, tensors) if made is None else made

    @staticmethod
    def ruled(
        op: OpOverload, args: Arguments, kwargs: Mapping[str, object], tensors: Sequence[Tensor]
    ) -> Recipe | None:
        """How a rule says that the result of an op is made; None where there is none for these arguments."""
        if op in VIEW_RULES:
            views = VIEW_RULES[op](*args) if not kwargs and _is_ordinary(tensors[0]) else None
            return Recipe(views=tuple(views), container=list if op in LISTS else None) if views else None
        rule = _RULES.get(op)
        if rule is None or kwargs.keys() - _KEYWORDS.get(op, frozenset()):
            return None
        suits = _SUITS.get(rule, _is_plain)
        if len({one.dtype for one in tensors}) != 1 or not all(map(suits, tensors)):
            return None
        made = rule(*args)
        if made is None:
            return None
        dtypes = [tensors[0].dtype] * len(made)
        if op is _MAX_POOL:
            dtypes[1] = torch.int64  # the places of the largest values
        results = tuple([(*one, dtype) for one, dtype in zip(made, dtypes, strict=True)])
        return Recipe(results, container=None if len(made) == 1 else tuple)

    def _run_compiled(
        self, op: OpOverload, args: Arguments, kwargs: Mapping[str, object], tensors: Sequence[Tensor]
    ) -> Any:
        if op not in _COMPILED or not tensors or not all(map(_is_ordinary, tensors)):
            return None
        with in_kernel_invocation_manager(self._mode):
            result = op(*args, **kwargs)
        return self.wrapped(result) if isinstance(result, Tensor) else [self.wrapped(one) for one in result]


def _is_ordinary(tensor: object) -> bool:
    return (
        type(tensor) is FakeTensor
        and tensor.fake_device == _CPU
        and tensor.layout is torch.strided
        and not tensor.is_complex()
    )


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is floating-point and lies in memory in the order of its dimensions."""
    return _is_ordinary(tensor) and tensor.is_floating_point() and tensor.stride() == row_major(tensor.shape)


def _is_dense(tensor: Tensor) -> bool:
    """Whether a tensor is floating-point and fills its memory, in whatever order of its dimensions."""
    if not (_is_ordinary(tensor) and tensor.is_floating_point()):
        return False
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return step > 0


def _is_image(tensor: Tensor) -> bool:
    """Whether a floating-point tensor is row by row for a convolution; what it does to others depends on its kernel."""
    return _is_plain(tensor) or (_is_dense(tensor) and _order_of(tensor) is torch.contiguous_format)


def _order_of(tensor: Tensor) -> torch.memory_format | None:
    """The order in which the dimensions of a tensor lie; None where sizes of 1 leave it open or it is another one."""
    row_by_row = tensor.is_contiguous()
    channels_last = tensor.dim() == _IMAGE and tensor.is_contiguous(memory_format=torch.channels_last)
    if row_by_row == channels_last:
        return None
    return torch.contiguous_format if row_by_row else torch.channels_last


def _ordered(shape: Sequence[int], order: torch.memory_format | None) -> Looks:
    """A new tensor with that order of its dimensions."""
    if order is not torch.channels_last:
        return tuple(shape), row_major(shape)
    outer, channels, height, width = shape
    batches, rows, columns, step = row_major((outer, height, width, channels))
    return tuple(shape), (batches, step, rows, columns)


def _contiguous(*shapes: Sequence[int]) -> Made:
    return [(tuple(shape), row_major(shape)) for shape in shapes]


def _changes_nothing_but_values(args: Arguments, kwargs: Mapping[str, object], tensors: Sequence[Tensor]) -> bool:
    """Whether an op that changes its first argument in place is an ordinary one: nothing to stretch or convert."""
    if kwargs.keys() - {"alpha"} or not all(map(_is_plain, tensors)):
        return False
    others = [one for one in args[1:] if isinstance(one, bool) or not isinstance(one, int | float)]
    return all(isinstance(one, Tensor) and (one.shape, one.dtype) == (args[0].shape, args[0].dtype) for one in others)


def _like_input(given: Tensor, *_: object) -> Made:
    """What fills its memory keeps the order of its dimensions; sizes of 1 get the strides that go with it."""
    if given.stride() == row_major(given.shape):
        return _contiguous(given.shape)
    order = _order_of(given)
    return [(tuple(given.shape), given.stride())] if order is None else [_ordered(given.shape, order)]


def _pointwise(one: Tensor, other: object) -> Made | None:
    """A pair that lies alike, or a smaller tensor beside one whose dimensions have a clear order in memory."""
    if not isinstance(other, Tensor):
        return _like_input(one) if isinstance(other, int | float) else None
    if one.shape == other.shape:
        return _like_input(one) if one.stride() == other.stride() else None
    if not (_is_plain(one) and _is_plain(other)):
        return None
    large, small = (one, other) if one.dim() >= other.dim() and one.numel() >= other.numel() else (other, one)
    sizes = large.shape[large.dim() - small.dim() :]
    covers = large.dim() >= small.dim() and all(
        size in (1, full) for size, full in zip(small.shape, sizes, strict=True)
    )
    ordered = all(outer > inner for outer, inner in pairwise(large.stride()))
    return _contiguous(large.shape) if covers and ordered and large.numel() else None


def _concatenated(tensors: Sequence[Tensor], dim: int = 0) -> Made | None:
    first = tensors[0]
    dim = dim % first.dim() if first.dim() else 0
    rest = {(*one.shape[:dim], *one.shape[dim + 1 :]) for one in tensors}
    if len(rest) != 1 or any(one.dim() != first.dim() or not one.numel() for one in tensors):
        return None
    return _contiguous((*first.shape[:dim], sum(one.shape[dim] for one in tensors), *first.shape[dim + 1 :]))


def _mean(given: Tensor, dims: Sequence[int] | None, keepdim: bool = False) -> Made | None:  # noqa: FBT001, FBT002 - torch's
    if not dims or not given.numel():
        return None
    gone = {dim % given.dim() for dim in dims}
    if keepdim:
        return (
            None
            if len(gone) == given.dim()
            else _contiguous([1 if place in gone else size for place, size in enumerate(given.shape)])
        )
    return _contiguous([size for place, size in enumerate(given.shape) if place not in gone])


def _product(one: Tensor, other: Tensor) -> Made | None:
    if not (one.is_floating_point() and one.dim() == other.dim()):
        return None
    fits = one.shape[-1] == other.shape[-2] and one.shape[:-2] == other.shape[:-2]
    return _contiguous((*one.shape[:-1], other.shape[-1])) if fits else None


def _product_with_bias(bias: Tensor, one: Tensor, other: Tensor) -> Made | None:
    return _product(one, other) if tuple(bias.shape) == (other.shape[-1],) else None


def _batch_norm(given: Tensor, *rest: Any) -> Made | None:
    """In evaluation, no statistics are saved; those of narrow types have a type of their own."""
    training = rest[4]
    if not training:
        return _contiguous(given.shape, (0,), (0,))
    plain = given.dtype is torch.float32 and given.dim() > 1 and given.numel() > 0
    return _contiguous(given.shape, given.shape[1:2], given.shape[1:2]) if plain else None


def _layer_norm(given: Tensor, shape: Sequence[int], *_: object) -> Made | None:
    if given.dtype is not torch.float32:  # the statistics of narrow types have a type of their own
        return None
    rows = (*given.shape[: given.dim() - len(shape)], *(1 for _ in shape))
    return _contiguous(given.shape, rows, rows)


def _convolution(given: Tensor, weight: Tensor, *rest: Any) -> Made | None:
    _, stride, padding, dilation, transposed, _, _ = rest
    spatial = given.dim() - 2
    if transposed or spatial not in _SPATIAL or not _is_plain(weight) or not _matches(given, weight, rest):
        return None
    sides = _sides(given.shape[2:], weight.shape[2:], stride, padding, dilation)
    return None if sides is None else _contiguous((given.shape[0], weight.shape[0], *sides))


def _sides(
    sizes: Sequence[int], kernel: Sequence[int], step: Sequence[int], pad: Sequence[int], spread: Sequence[int]
) -> list[int] | None:
    """The sizes that a window leaves when it moves over others; None where torch's own message is better."""
    if not all(len(one) in (1, len(sizes)) for one in (kernel, step, pad, spread)):
        return None
    sides = []
    for place, size in enumerate(sizes):
        window, stride, margin, gap = (one[place if len(one) > 1 else 0] for one in (kernel, step, pad, spread))
        sides.append((size + 2 * margin - gap * (window - 1) - 1) // stride + 1)
    return sides if min(sides) > 0 else None


def _pool(given: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), *rest: Any) -> list[int] | None:
    """The shape that pooling leaves, as long as only whole windows count."""
    padding, spread, ceil_mode = rest
    sides = _sides(given.shape[2:], kernel, stride or kernel, padding, spread) if given.dim() == _IMAGE else None
    return None if sides is None or ceil_mode or not given.numel() else [*given.shape[:2], *sides]


def _max_pool(given: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), *rest: Any) -> Made | None:
    defaults: Arguments = ((0,), (1,), False)
    padding, spread, ceil_mode = (*rest, *defaults[len(rest) :])
    shape = _pool(given, kernel, stride, padding, spread, ceil_mode)
    return None if shape is None else _contiguous(shape, shape)


def _average_pool(given: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), *rest: Any) -> Made | None:
    defaults: Arguments = ((0,), False)
    padding, ceil_mode = (*rest[:2], *defaults[len(rest) :])
    shape = _pool(given, kernel, stride, padding, (1,), ceil_mode)
    return None if shape is None else _contiguous(shape)


def _padded(given: Tensor, pads: Sequence[int], _value: object = 0) -> Made | None:
    shape = list(given.shape)
    if len(pads) % 2 or len(pads) > 2 * len(shape) or not given.numel():
        return None
    for place in range(len(pads) // 2):
        shape[-1 - place] += pads[2 * place] + pads[2 * place + 1]
    return _contiguous(shape) if min(shape) > 0 else None


def _group_norm(given: Tensor, _weight: object, _bias: object, *rest: Any) -> Made | None:
    if given.dtype is not torch.float32 or not given.numel():
        return None
    statistics = (given.shape[0], rest[3])
    return _contiguous(given.shape, statistics, statistics)


def _matches(given: Tensor, weight: Tensor, rest: Arguments) -> bool:
    """Whether channels, groups and bias agree; torch's own message is better where they do not."""
    bias, groups = rest[0], rest[-1]
    fits = given.shape[1] == weight.shape[1] * groups and weight.shape[0] % groups == 0 and given.numel() > 0
    return fits and (bias is None or tuple(bias.shape) == (weight.shape[0],))


_SUITS: dict[
    Callable[..., Made | None], Callable[[Tensor], bool]
] = {  # other tensors than plain ones that a rule takes
    _product: _is_ordinary,  # it copies what is not contiguous
    _product_with_bias: _is_ordinary,
    _layer_norm: _is_ordinary,
    _like_input: _is_dense,
    _pointwise: _is_dense,
    _convolution: _is_image,
}
_RULES: dict[OpOverload, Callable[..., Made | None]] = {
    **dict.fromkeys(_LIKE_INPUT, _like_input),
    **dict.fromkeys((_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor), _pointwise),
    _aten.cat.default: _concatenated,
    _aten.mean.dim: _mean,
    _aten.mm.default: _product,
    _aten.bmm.default: _product,
    _aten.addmm.default: _product_with_bias,
    _aten.native_batch_norm.default: _batch_norm,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_group_norm.default: _group_norm,
    _aten.convolution.default: _convolution,
    _MAX_POOL: _max_pool,
    _aten.avg_pool2d.default: _average_pool,
    _aten.constant_pad_nd.default: _padded,
}
