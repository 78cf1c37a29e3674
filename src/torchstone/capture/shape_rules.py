"""Shapes of the most common ops without a detour: torch's own meta kernels, and rules for ops that have none.

PyTorch's fake tensors take an op that is called with new shapes apart in Python: a batch norm costs several
milliseconds, again for each width. Here the ops that most models consist of get a rule for the common case, in which
all arguments are of one element type and lie in memory in an ordinary way, or go straight to their compiled meta
kernel. In all other cases, and for all other ops, the fake tensors decide. What was decided once is a recipe: a call
with arguments that look the same gets a result that looks the same, in this capture and in those that follow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._prims_common import canonicalize_dim
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from torchstone.capture.ops import reads_values, schema_of
from torchstone.capture.tables import storage_pointer
from torchstone.capture.view_rules import (
    LISTS,
    VIEW_RULES,
    View,
    channels_last,
    fills_memory,
    like,
    pointwise,
    row_major,
    suggests_channels_last,
)

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
    _aten.linalg_vector_norm.default, _aten.amax.default, _aten.sum.dim_IntList,
})  # fmt: skip
_LIKE_INPUT = frozenset({
    _aten.hardswish.default, _aten.hardsigmoid.default, _aten.leaky_relu.default,
    _aten.relu.default, _aten.silu.default, _aten.sigmoid.default, _aten.tanh.default, _aten.gelu.default,
    _aten.neg.default, _aten.exp.default, _aten.sqrt.default, _aten.rsqrt.default, _aten.sin.default, _aten.cos.default,
    _aten.abs.default, _aten.pow.Tensor_Scalar, _aten.clamp_min.default, _aten.clamp.default,
})  # fmt: skip
_IN_PLACE = frozenset({
    _aten.hardswish_.default, _aten.hardtanh_.default, _aten.hardsigmoid_.default, _aten.leaky_relu_.default,
    _aten.relu_.default, _aten.silu_.default, _aten.sigmoid_.default, _aten.tanh_.default,
    _aten.add_.Tensor, _aten.sub_.Tensor, _aten.mul_.Tensor, _aten.div_.Tensor, _aten.add_.Scalar, _aten.mul_.Scalar,
})  # fmt: skip
_RESIZING = (
    _aten.upsample_nearest2d.default, _aten._upsample_nearest_exact2d.default, _aten.upsample_bilinear2d.default,
    _aten.upsample_bicubic2d.default, _aten._upsample_bilinear2d_aa.default, _aten._upsample_bicubic2d_aa.default,
)  # fmt: skip
_SPATIAL = (1, 2, 3)  # dimensions of a signal, an image, a volume
_IMAGE = 4  # dimensions of a batch of images
_MAX_POOL = _aten.max_pool2d_with_indices.default
_ATTENTION = _aten._scaled_dot_product_flash_attention_for_cpu.default
_INDEX = _aten.index.Tensor
_SECOND_DTYPES = {_MAX_POOL: torch.int64, _ATTENTION: torch.float32}  # places of the largest values; sums of exponents
_KEYWORDS: dict[OpOverload, frozenset[str]] = {  # that change nothing about the shape
    _aten.gelu.default: frozenset({"approximate"}),
    _aten.add.Tensor: frozenset({"alpha"}),
    _aten.sub.Tensor: frozenset({"alpha"}),
    _aten.clone.default: frozenset({"memory_format"}),
    _ATTENTION: frozenset({"scale", "attn_mask"}),
    _aten.var.correction: frozenset({"correction", "keepdim"}),
    _aten.addcmul.default: frozenset({"value"}),
}


Looks = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]  # shape, strides and type


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the result of a call is made again; without any results, it is not."""

    results: tuple[Looks, ...] = ()  # new memory
    views: tuple[View, ...] = ()  # of the first argument
    container: type | None = None  # tuple or list


_ATTRIBUTES: dict[str, object] = {}  # of a new fake tensor on the cpu, whatever its mode
_NO_RECIPE = Recipe()
MADE_SMALL = Recipe()  # of an op that is given no tensor and makes a small one: it runs, and need not be measured first
Made = list[tuple[tuple[int, ...], tuple[int, ...]]]  # shape and strides of each result


class ShapeRules:
    """Runs ops on the fake tensors of one mode by rule."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        if not _ATTRIBUTES:
            sample = FakeTensor(mode, torch.empty(0, device=_META), _CPU)
            _ATTRIBUTES.update({**vars(sample), "fake_mode": None})
        self._attributes = {**_ATTRIBUTES, "fake_mode": mode}
        self._of_parameters = {**self._attributes, "_is_param": True}  # what nn.Parameter does with a tensor subclass
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

    def held(self, tensor: Tensor) -> Tensor:
        """A fake tensor on the cpu for a plain tensor that a module holds."""
        made = Tensor._make_subclass(
            FakeTensor,
            torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META),
            tensor.requires_grad and tensor.is_leaf,
            dispatch_device=True,
            device_for_backend_keys=_CPU,
        )
        self._guard_memory(made)
        vars(made).update(self._of_parameters if isinstance(tensor, nn.Parameter) else self._attributes)
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
        if not given or not all(map(is_ordinary, given)):
            return _NO_RECIPE
        if not made or not all(isinstance(one, Tensor) and is_ordinary(one) for one in made):
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
        if changes_only_values(op, args, kwargs):
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
            views = VIEW_RULES[op](*args) if not kwargs and is_ordinary(tensors[0]) else None
            return Recipe(views=tuple(views), container=list if op in LISTS else None) if views else None
        rule = _RULES.get(op)
        if rule is None or kwargs.keys() - _KEYWORDS.get(op, frozenset()):
            return None
        suits = _SUITS.get(rule, _is_plain)
        alike = tensors[:1] if op is _INDEX else tensors  # the rule looks at the places itself
        if len({one.dtype for one in alike}) != 1 or not all(map(suits, alike)):
            return None
        made = rule(*args, **kwargs)
        if made is None:
            return None
        dtypes = [tensors[0].dtype] * len(made)
        if op in _SECOND_DTYPES:
            dtypes[1] = _SECOND_DTYPES[op]
        results = tuple([(*one, dtype) for one, dtype in zip(made, dtypes, strict=True)])
        return Recipe(results, container=None if len(made) == 1 else tuple)

    def _run_compiled(
        self, op: OpOverload, args: Arguments, kwargs: Mapping[str, object], tensors: Sequence[Tensor]
    ) -> Any:
        if op not in _COMPILED or not tensors or not all(map(is_ordinary, tensors)):
            return None
        with in_kernel_invocation_manager(self._mode):
            result = op(*args, **kwargs)
        return self.wrapped(result) if isinstance(result, Tensor) else [self.wrapped(one) for one in result]


def is_ordinary(tensor: object) -> bool:
    """Whether a tensor is a fake one on the cpu with numbers in plain memory."""
    return (
        type(tensor) is FakeTensor
        and tensor.fake_device == _CPU
        and tensor.layout is torch.strided
        and not tensor.is_complex()
    )


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is floating-point and lies in memory in the order of its dimensions."""
    return is_ordinary(tensor) and tensor.is_floating_point() and tensor.stride() == row_major(tensor.shape)


def _is_float(tensor: Tensor) -> bool:
    """Whether a tensor is floating-point, in whatever way it lies in memory."""
    return is_ordinary(tensor) and tensor.is_floating_point()


def _is_image(tensor: Tensor) -> bool:
    """Whether kernels choose between row by row and channels last for a floating-point tensor as they do for images."""
    return _is_float(tensor) and (tensor.dim() == _IMAGE or tensor.stride() == row_major(tensor.shape))


def _is_convolved(tensor: Tensor) -> bool:
    """Whether a convolution knows the order of an image; in float64 it has kernels of its own."""
    return _is_plain(tensor) or (_is_image(tensor) and tensor.dtype is not torch.float64)


def _ordered(given: Tensor, *shapes: Sequence[int]) -> Made:
    """New tensors, the dimensions in the order of an image."""
    if given.dim() == _IMAGE and suggests_channels_last(given.shape, given.stride()):
        return [(tuple(shape), channels_last(shape)) for shape in shapes]
    return _contiguous(*shapes)


def _contiguous(*shapes: Sequence[int]) -> Made:
    return [(tuple(shape), row_major(shape)) for shape in shapes]


def changes_only_values(op: OpOverload, args: Arguments, kwargs: Mapping[str, object]) -> bool:
    """Whether an op changes its first argument in place in an ordinary way: nothing to convert, no overlap."""
    if op not in _IN_PLACE or kwargs.keys() - {"alpha"} or not _is_float(args[0]) or not fills_memory(args[0]):
        return False
    others = [one for one in args[1:] if isinstance(one, bool) or not isinstance(one, int | float)]
    return all(isinstance(one, Tensor) and _is_float(one) and _goes_into(one, args[0]) for one in others)


def _goes_into(other: Tensor, target: Tensor) -> bool:
    """Whether a tensor can be read while a target of its type is written: alike, or smaller and in other memory."""
    if other.dtype is not target.dtype:
        return False
    if other.shape == target.shape and other.stride() == target.stride() == row_major(target.shape):
        return True
    sizes = target.shape[target.dim() - other.dim() :]
    fits = other.dim() <= target.dim() and all(size in (1, full) for size, full in zip(other.shape, sizes, strict=True))
    return fits and storage_pointer(other) != storage_pointer(target)


def _like_input(given: Tensor, *_: object, **_keywords: object) -> Made | None:
    made = pointwise([given], with_number=False)
    return None if made is None else [made]


def _pointwise(one: Tensor, other: object, **_keywords: object) -> Made | None:
    if isinstance(other, Tensor):
        made = pointwise([one, other], with_number=False)
    elif type(other) in (int, float):
        made = pointwise([one], with_number=True)
    else:
        return None
    return None if made is None else [made]


def _softmax(given: Tensor, dim: int, converts: torch.dtype | bool | None = None) -> Made | None:  # noqa: FBT001 - torch's
    canonicalize_dim(given.dim(), dim)  # raises what the kernel raises, which torch's own rule does not
    return _contiguous(given.shape) if not converts and given.numel() else None


def _rolled(given: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Made | None:
    fits = _counted(given, dims) and len(shifts) == len(dims) if dims else len(shifts) == 1
    return _contiguous(given.shape) if given.numel() and fits else None


def _counted(given: Tensor, dims: Sequence[int]) -> set[int] | None:
    """Dimensions, counted from the first one; None where one does not exist or is named twice."""
    count = given.dim()
    found = {dim % count for dim in dims if -count <= dim < count}
    return found if len(found) == len(dims) else None


def _copied(given: Tensor, *_: object, memory_format: torch.memory_format | None = None) -> Made | None:
    if memory_format is torch.contiguous_format:
        return _contiguous(given.shape)
    return [like(given)] if memory_format in (None, torch.preserve_format) and given.numel() else None


def _picked(given: Tensor, indices: Sequence[Tensor | None]) -> Made | None:
    """Rows by their numbers."""
    if len(indices) != 1 or indices[0] is None or not given.dim():
        return None
    places = indices[0]
    if places.dtype is not torch.int64 or places.stride() != row_major(places.shape) or not places.numel():
        return None
    return _contiguous((*places.shape, *given.shape[1:])) if given.numel() else None


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: object, **_keywords: object) -> Made | None:
    fits = query.dim() == _IMAGE and key.shape == value.shape and key.shape[:2] == query.shape[:2]
    if not fits or key.shape[-1] != query.shape[-1] or not (query.numel() and key.numel()):
        return None
    if query.dtype is torch.float64:
        return None
    batch, heads, tokens = query.shape[:3]
    return [like(query), ((batch, heads, tokens), (tokens * heads, 1, heads))]


def _concatenated(tensors: Sequence[Tensor], dim: int = 0) -> Made | None:
    first = tensors[0]
    if not _counted(first, [dim]):
        return None
    dim %= first.dim()
    rest = {(*one.shape[:dim], *one.shape[dim + 1 :]) for one in tensors}
    if len(rest) != 1 or any(one.dim() != first.dim() or not one.numel() for one in tensors):
        return None
    shape = (*first.shape[:dim], sum(one.shape[dim] for one in tensors), *first.shape[dim + 1 :])
    if first.dim() == _IMAGE and all(suggests_channels_last(one.shape, one.stride()) for one in tensors):
        return [(shape, channels_last(shape))]
    if first.dim() == _IMAGE + 1 and not all(map(_is_plain, tensors)):  # which may lie channels last
        return None
    return _contiguous(shape)


def _stacked(tensors: Sequence[Tensor], dim: int = 0) -> Made | None:
    shape = list(tensors[0].shape)
    if any(one.shape != tensors[0].shape for one in tensors) or not -len(shape) - 1 <= dim <= len(shape):
        return None
    shape.insert(dim + len(shape) + 1 if dim < 0 else dim, len(tensors))
    return _contiguous(shape) if 0 not in shape else None


def _repeated(given: Tensor, times: Sequence[int]) -> Made | None:
    new = len(times) - given.dim()
    if new < 0 or not given.numel() or min(times, default=1) < 1:
        return None
    return _contiguous([size * count for size, count in zip([1] * new + list(given.shape), times, strict=True)])


def _resized(given: Tensor, size: Sequence[int] | None, *_: object) -> Made | None:
    """An image in another size; where a scale is given instead, torch works the size out."""
    if size is None or given.dim() != _IMAGE or not given.numel() or min(size) < 1:
        return None
    return _ordered(given, (*given.shape[:2], *size))


def _pointwise_of_three(one: Tensor, other: Tensor, third: Tensor, **_keywords: object) -> Made | None:
    made = pointwise([one, other, third], with_number=False)
    return None if made is None else [made]


def _variance(
    given: Tensor, dims: Sequence[int] | None = None, *, keepdim: bool = False, **_keywords: object
) -> Made | None:
    return _reduced(given, dims, keepdim)


def _reduced(given: Tensor, dims: Sequence[int] | None = None, keepdim: bool = False) -> Made | None:  # noqa: FBT001, FBT002 - torch's
    gone = _counted(given, dims) if dims and given.numel() else None
    if gone is None:
        return None
    if keepdim:
        return (
            None
            if len(gone) == given.dim()
            else _contiguous([1 if place in gone else size for place, size in enumerate(given.shape)])
        )
    return _contiguous([size for place, size in enumerate(given.shape) if place not in gone])


def _norm(given: Tensor, _order: float = 2, dims: Sequence[int] | None = None, keepdim: bool = False) -> Made | None:  # noqa: FBT001, FBT002 - torch's
    return _reduced(given, dims, keepdim)


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
    if given.is_contiguous():
        made = _contiguous(given.shape)
    elif given.dim() == _IMAGE and given.is_contiguous(memory_format=torch.channels_last):
        made = [(tuple(given.shape), channels_last(given.shape))]
    else:
        made = _ordered(given, given.shape)
    if not training:
        return made + _contiguous((0,), (0,))
    plain = given.dtype is torch.float32 and given.dim() > 1 and given.numel() > 0
    return made + _contiguous(given.shape[1:2], given.shape[1:2]) if plain else None


def _layer_norm(given: Tensor, shape: Sequence[int], *rest: Any) -> Made | None:
    if given.dtype is not torch.float32:  # the statistics of narrow types have a type of their own
        return None
    sizes = tuple(shape)
    if (
        not sizes
        or sizes != given.shape[-len(sizes) :]
        or any(one is not None and one.shape != sizes for one in rest[:2])
    ):
        return None
    rows = (*given.shape[: given.dim() - len(shape)], *(1 for _ in shape))
    return _contiguous(given.shape, rows, rows)


def _convolution(given: Tensor, weight: Tensor, *rest: Any) -> Made | None:
    _, stride, padding, dilation, transposed, _, _ = rest
    spatial = given.dim() - 2
    if transposed or spatial not in _SPATIAL or not _is_plain(weight) or not _matches(given, weight, rest):
        return None
    sides = _sides(given.shape[2:], weight.shape[2:], stride, padding, dilation)
    return None if sides is None else _ordered(given, (given.shape[0], weight.shape[0], *sides))


def _sides(sizes: Sequence[int], *windows: Sequence[int], parts: bool = False) -> list[int] | None:
    """The sizes that a window leaves when it moves over others; None where torch's own message is better.

    `windows` are the sizes of the window, its steps, the padding, and the distances between what it reads. With parts,
    a window also counts that reaches over the end, unless it begins beyond it.
    """
    if not all(len(one) in (1, len(sizes)) for one in windows):
        return None
    sides = []
    for place, size in enumerate(sizes):
        window, stride, margin, gap = (one[place if len(one) > 1 else 0] for one in windows)
        if min(window, stride, gap) < 1 or margin < 0:
            return None
        room = size + 2 * margin - gap * (window - 1) - 1
        side = (room + (stride - 1) * parts) // stride + 1
        sides.append(side - (parts and (side - 1) * stride >= size + margin))
    return sides if min(sides) > 0 else None


def _pool(given: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), *rest: Any) -> list[int] | None:
    """The shape that pooling leaves."""
    padding, spread, parts = rest
    if given.dim() != _IMAGE or not given.numel() or 2 * max(padding) > max(spread) * (min(kernel) - 1) + 1:
        return None  # also where the padding is too wide for a window
    sides = _sides(given.shape[2:], kernel, stride or kernel, padding, spread, parts=parts)
    return None if sides is None else [*given.shape[:2], *sides]


def _max_pool(given: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), *rest: Any) -> Made | None:
    defaults: Arguments = ((0,), (1,), False)
    padding, spread, ceil_mode = (*rest, *defaults[len(rest) :])
    shape = _pool(given, kernel, stride, padding, spread, ceil_mode)
    return None if shape is None else _ordered(given, shape, shape)


def _average_pool(given: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), *rest: Any) -> Made | None:
    defaults: Arguments = ((0,), False)
    padding, ceil_mode = (*rest[:2], *defaults[len(rest) :])
    shape = _pool(given, kernel, stride, padding, (1,), ceil_mode)
    return None if shape is None else _ordered(given, shape)


def _padded(given: Tensor, pads: Sequence[int], _value: object = 0) -> Made | None:
    shape = list(given.shape)
    if len(pads) % 2 or len(pads) > 2 * len(shape) or not given.numel():
        return None
    if max(pads, default=0) <= 0 and not _is_plain(given):  # a copy of a part, which lies as the whole does
        return None if any(pads) else [like(given)]
    for place in range(len(pads) // 2):
        shape[-1 - place] += pads[2 * place] + pads[2 * place + 1]
    return _ordered(given, shape) if min(shape) > 0 else None


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
    _product: is_ordinary,  # it copies what is not contiguous
    _product_with_bias: is_ordinary,
    _layer_norm: is_ordinary,
    _softmax: _is_float,
    _reduced: _is_float,
    _norm: _is_float,
    _like_input: _is_float,
    _pointwise: _is_float,
    _copied: _is_float,
    _concatenated: _is_float,
    _attention: _is_float,
    _convolution: _is_convolved,
    _batch_norm: _is_image,
    _max_pool: _is_image,
    _average_pool: _is_image,
    _padded: _is_image,
    _resized: _is_image,
    _repeated: _is_float,
    _variance: _is_float,
    _pointwise_of_three: _is_float,
}
_RULES: dict[OpOverload, Callable[..., Made | None]] = {
    **dict.fromkeys(_LIKE_INPUT, _like_input),
    **dict.fromkeys((_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor), _pointwise),
    _aten.cat.default: _concatenated,
    **dict.fromkeys((_aten.mean.dim, _aten.sum.dim_IntList, _aten.amax.default), _reduced),
    _aten.stack.default: _stacked,
    _aten.repeat.default: _repeated,
    _aten.addcmul.default: _pointwise_of_three,
    _aten.var.correction: _variance,
    **dict.fromkeys(_RESIZING, _resized),
    _aten.linalg_vector_norm.default: _norm,
    _aten._softmax.default: _softmax,
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
    _aten._safe_softmax.default: _softmax,
    _aten.roll.default: _rolled,
    _aten.clone.default: _copied,
    _aten.hardtanh.default: _copied,
    _aten.mul.Scalar: _pointwise,
    _INDEX: _picked,
    _ATTENTION: _attention,
}
