"""Shapes by rule against what kernels and fake tensors give: sizes, strides, element types and shared memory."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from torchstone.capture.kernel_results import KERNEL_LAYOUTS
from torchstone.capture.ops import map_tensors, tensors_in
from torchstone.capture.shape_rules import ShapeRules
from torchstone.capture.tensor_modes import FakeWorld

aten = torch.ops.aten
CALLS = 40
UNARY = (
    "relu", "silu", "sigmoid", "tanh", "gelu", "hardswish", "hardtanh", "hardsigmoid", "leaky_relu", "neg", "exp",
    "sqrt", "rsqrt", "sin", "cos", "abs",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div")


def _tensor(dice: Random, shape: list[int], dtype: torch.dtype) -> Tensor:
    """A tensor that lies in memory in one of several ways."""
    tensor = torch.rand(shape).to(dtype)
    match dice.randrange(7):
        case 1 if len(shape) == 4:
            return tensor.to(memory_format=torch.channels_last)
        case 5:  # one step apart
            return torch.rand([2 * size for size in shape]).to(dtype)[tuple(slice(0, 2 * size, 2) for size in shape)]
        case 6:  # sizes of 1 have strides of their own
            strides = [7 if size == 1 else stride for size, stride in zip(shape, tensor.stride(), strict=True)]
            return torch.rand(tensor.numel()).to(dtype).as_strided(shape, strides)
        case 2 if len(shape) > 1:
            return tensor.transpose(0, -1).contiguous().transpose(0, -1)
        case 3:
            return tensor[:1].expand(shape)
        case 4:  # one part of a larger one
            return torch.rand(shape[0], 2, *shape[1:]).to(dtype)[:, 1]
        case _:
            return tensor


def _calls(dice: Random) -> Iterator[tuple[OpOverload, tuple[Any, ...]]]:
    dtype = dice.choice([torch.float32, torch.bfloat16])
    shape = [dice.choice([1, 2, 3, 4, 5]) for _ in range(dice.randrange(1, 5))]
    dim = dice.randrange(len(shape))
    x, y = _tensor(dice, shape, dtype), _tensor(dice, shape, dtype)
    small = _tensor(dice, [dice.choice([1, size]) for size in shape], dtype)
    yield from ((getattr(aten, name).default, (x,)) for name in UNARY)
    for name in BINARY:
        others = (y, small, 2, 0.5, torch.arange(shape[-1]), torch.tensor(2.0), _tensor(dice, shape, torch.float32))
        yield from ((getattr(aten, name).Tensor, (x, other)) for other in others)
        yield getattr(aten, name).Tensor, (small, x)
    yield aten.cat.default, ([x, y, x], dim)
    yield aten.stack.default, ([x, y], dim - dice.choice([0, x.dim() + 1]))
    yield aten.repeat.default, (x, [dice.choice([1, 2, 3]) for _ in range(x.dim() + dice.choice([0, 1]))])
    yield aten.addcmul.default, (small, x, y)
    yield aten.var.correction, (torch.cat([x, x, x], dim), [dim])
    yield aten.pow.Tensor_Scalar, (x, dice.choice([0, 1, 2, 0.5]))
    yield aten.clamp_min.default, (x, 0.1)
    yield aten.clamp.default, (x, 0.1, 0.9)
    yield aten.mul.Scalar, (x, 2.0)
    yield aten.roll.default, (x, [1], [dim])
    yield aten.index.Tensor, (x, [torch.tensor([0, 0, 0]).view(dice.choice([[3], [3, 1]]))])
    yield aten._safe_softmax.default, (x, dim)
    yield aten.mean.dim, (x, [dim], dice.random() < 0.5)
    yield aten._softmax.default, (x, dim, False)
    yield aten.linalg_vector_norm.default, (x, dice.choice([1, 2, 2.0]), [dim], dice.random() < 0.5)
    yield aten.amax.default, (x, [dim], dice.random() < 0.5)
    yield aten.sum.dim_IntList, (x, [dim], dice.random() < 0.5)
    yield aten.mean.dim, (x, [0, -1] if x.dim() > 1 else [0], dice.random() < 0.5)
    a, b, c, d = (dice.choice([1, 2, 3, 8]) for _ in range(4))
    yield aten.mm.default, (_tensor(dice, [a, b], dtype), _tensor(dice, [b, c], dtype))
    yield aten.bmm.default, (_tensor(dice, [d, a, b], dtype), _tensor(dice, [d, b, c], dtype))
    heads = [_tensor(dice, [d, a, tokens, 8], dtype) for tokens in (b, c, c)]
    heads[2] = heads[2].reshape(heads[1].shape)
    yield aten._scaled_dot_product_flash_attention_for_cpu.default, tuple(heads)
    yield aten.addmm.default, (torch.rand(c).to(dtype), _tensor(dice, [a, b], dtype), _tensor(dice, [b, c], dtype))
    yield from _views(dice, x, dim)
    yield from _layers(dice, x, dtype)


def _views(dice: Random, x: Tensor, dim: int) -> Iterator[tuple[OpOverload, tuple[Any, ...]]]:
    yield aten.view.default, (x.contiguous(), [1, -1, 1])
    yield aten._unsafe_view.default, (x.contiguous(), [-1])
    shapes = ([-1, *x.shape[1:]], [*x.shape, 1], [1, -1, *x.shape[1:], 1])
    yield from ((aten.view.default, (x, shape)) for shape in shapes)
    yield aten.slice.Tensor, (x, dim, dice.choice([0, 1, -2, None]), dice.choice([9, -1, 0, None]), dice.choice([1, 2]))
    yield aten.transpose.int, (x, 0, -1)
    yield aten.permute.default, (x, dice.sample(range(-x.dim(), 0), x.dim()))
    yield from ((aten.t.default, (one,)) for one in (x.flatten(), x.flatten()[None]))
    yield aten.squeeze.dim, (x, dim - dice.choice([0, x.dim()]))
    yield aten.squeeze.dims, (x, [0, -1] if x.dim() > 1 else [0])
    yield aten.squeeze.default, (x,)
    yield aten.unsqueeze.default, (x, dice.choice([dim, -dim - 1, x.dim()]))
    yield aten.select.int, (x, dim, -1)
    yield aten.unbind.int, (x, dim)
    yield aten.split.Tensor, (x, 2, dim)
    yield aten.split_with_sizes.default, (x, [1, x.shape[dim] - 1], dim)
    yield aten.expand.default, (x.unsqueeze(0), [3, *x.shape])
    length = x.shape[dim]
    yield (
        aten.unfold.default,
        (x, dice.choice([dim, dim - x.dim()]), dice.randint(0, length), dice.choice([1, 2, 3, 9])),
    )
    yield aten.alias.default, (x,)
    yield aten.clone.default, (x,)


def _layers(dice: Random, x: Tensor, dtype: torch.dtype) -> Iterator[tuple[OpOverload, tuple[Any, ...]]]:
    weight = torch.ones(x.shape[-1:], dtype=dtype)
    yield aten.native_layer_norm.default, (x, list(x.shape[-1:]), weight, weight, 1e-5)
    channels, groups = dice.choice([(1, 1), (4, 1), (4, 4), (6, 2)])
    image = _tensor(dice, [dice.choice([1, 2]), channels, 7, 9], dtype)
    kernel = torch.rand(groups * dice.choice([1, 3]), channels // groups, 3, dice.choice([1, 3])).to(dtype)
    steps, pads, spread = ([dice.choice(one), dice.choice(one)] for one in ((1, 2), (0, 1), (1, 2)))
    yield aten.convolution.default, (image, kernel, None, steps, pads, spread, False, [0, 0], groups)
    state = [torch.ones(channels, dtype=dtype) for _ in range(4)]
    yield aten.native_batch_norm.default, (image, *state, dice.random() < 0.5, 0.1, 1e-5)
    yield aten.native_group_norm.default, (image, *state[:2], image.shape[0], channels, 63, groups, 1e-5)
    step = dice.choice([[], [2], [1, 2]])
    yield aten.max_pool2d_with_indices.default, (image, [3, 2], step, [1], [1], dice.random() < 0.3)
    yield aten.avg_pool2d.default, (image, [2], step, [1], dice.random() < 0.3)
    yield aten.avg_pool2d.default, (image, [3], dice.choice([[2], [3], [4]]), [dice.choice([0, 1])], True)
    yield aten.constant_pad_nd.default, (image, [1, dice.choice([0, -2]), 2, 3], 0.5)
    yield aten.constant_pad_nd.default, (image, [dice.choice([0, -1]), 0, 0, 0], 0.0)
    size = [dice.choice([1, 5, 14]), dice.choice([1, 9, 18])]
    yield aten.upsample_nearest2d.default, (image, size)
    yield aten._upsample_nearest_exact2d.default, (image, size)
    for name in ("upsample_bilinear2d", "upsample_bicubic2d"):
        yield getattr(aten, name).default, (image, size, dice.random() < 0.5)
        yield getattr(aten, f"_{name}_aa").default, (_tensor(dice, list(image.shape), torch.float32), size, False)
    other = _tensor(dice, list(image.shape), dtype)
    swapped = image.transpose(1, 3)  # neither row by row nor channels last
    yield aten.constant_pad_nd.default, (swapped, [0, 0, dice.choice([-1, 0, 1]), 0], 0.0)
    yield aten.max_pool2d_with_indices.default, (swapped, [1, 1])
    yield aten.avg_pool2d.default, (swapped, [1, 1])
    yield aten.native_batch_norm.default, (swapped, *[torch.ones(9, dtype=dtype)] * 4, False, 0.1, 1e-5)
    yield aten.cat.default, ([image, other], dice.choice([0, 1, 2, 3]))
    part = torch.rand(image.shape[0], channels + 2, *image.shape[2:]).to(dtype)[:, 1 : channels + 1]
    yield aten.convolution.default, (part, kernel, None, steps, pads, spread, False, [0, 0], groups)
    yield aten.native_batch_norm.default, (part, *state, dice.random() < 0.5, 0.1, 1e-5)
    yield aten.max_pool2d_with_indices.default, (part, [3, 2], step, [1], [1], False)
    last = torch.rand(image.shape[0], *image.shape[2:], channels + 2).to(dtype).permute(0, 3, 1, 2)[:, 1 : channels + 1]
    yield aten.convolution.default, (last, kernel, None, steps, pads, spread, False, [0, 0], groups)
    signal, taps = image[:, :, 0], kernel[..., 0]
    yield aten.convolution.default, (signal, taps, None, steps[:1], pads[:1], spread[:1], False, [0], groups)


def _seen(result: Any, given: Tensor) -> list[tuple[object, ...]]:
    return [
        (tuple(one.shape), one.stride(), one.dtype, one.storage_offset(),
         one.untyped_storage()._cdata == given.untyped_storage()._cdata)
        for one in tensors_in([result])
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_a_rule_gives_what_the_kernel_or_a_fake_tensor_gives(seed: int) -> None:
    dice = Random(seed)  # noqa: S311 - no secret
    mode = FakeTensorMode()
    ruled: set[OpOverload] = set()
    asked: set[OpOverload] = set()

    def fake(tensor: Tensor) -> Tensor:
        elements = tensor.untyped_storage().nbytes() // tensor.element_size()
        memory = torch.empty(elements, dtype=tensor.dtype, device="meta")
        empty = memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return FakeTensor(mode, empty, torch.device("cpu"))

    for _ in range(CALLS):
        for op, args in _calls(dice):
            asked.add(op)
            stand_ins = map_tensors(fake, args)
            result = ShapeRules(mode).run(op, stand_ins, {}, list(tensors_in(stand_ins)))
            if result is None:
                continue
            ruled.add(op)
            seen = _seen(result, next(tensors_in(stand_ins)))
            if seen != _seen(op(*args), next(tensors_in(args))):  # torch's own rule differs from its kernel, too
                with mode:
                    assert seen == _seen(op(*stand_ins), next(tensors_in(stand_ins))), (op, args)
    assert ruled == asked


def test_what_a_rule_does_not_cover_is_left_to_fake_tensors() -> None:
    mode = FakeTensorMode()
    with mode:
        image, weight = torch.rand(1, 4, 5, 5), torch.rand(3, 5, 3, 3)
        wrong = (image, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    assert ShapeRules(mode).run(aten.convolution.default, wrong, {}, [image, weight]) is None
    assert ShapeRules(mode).run(aten.cumsum.default, (image, 1), {}, [image]) is None


def _gradients(dice: Random, shape: list[int]) -> Iterator[tuple[OpOverload, tuple[Any, ...]]]:
    """Backward ops on a gradient and an input that lie in memory in several ways."""
    grad, x = (_tensor(dice, shape, torch.float32) for _ in range(2))
    batch, channels, height, width = shape
    mean, scale = torch.zeros(batch, channels, height, 1), torch.ones(batch, channels, height, 1)
    last, each = torch.ones(width), torch.ones(channels)
    yield aten.native_layer_norm_backward.default, (grad, x, [width], mean, scale, last, last, [True] * 3)
    stat = torch.zeros(batch, 2), torch.ones(batch, 2)
    sizes = batch, channels, height * width, 2
    yield aten.native_group_norm_backward.default, (grad, x, *stat, each, *sizes, [True] * 3)
    yield aten.native_batch_norm_backward.default, (grad, x, *[each] * 5, True, 1e-5, [True] * 3)
    yield aten.native_batch_norm.default, (x, *[each] * 4, False, 0.1, 1e-5)
    yield aten._log_softmax_backward_data.default, (grad, x, dice.choice([1, -1]), torch.float32)
    yield aten.glu_backward.default, (_tensor(dice, [*shape[:-1], width // 2], torch.float32), x, -1)
    yield aten.mse_loss_backward.default, (grad, x, torch.rand(shape), 0)
    yield aten.native_dropout_backward.default, (grad, x > 0, 2.0)
    yield aten.elu_backward.default, (grad, 1.0, 1.0, 1.0, False, x)
    yield aten.hardtanh_backward.default, (grad, x, 0.0, 1.0)
    yield aten.softplus_backward.default, (grad, x, 1, 20)
    yield aten.logit_backward.default, (grad, x, None)
    yield from ((getattr(aten, name).default, (grad, x)) for name in ("hardswish_backward", "hardsigmoid_backward"))
    yield aten.max_unpool2d.default, (x, torch.zeros_like(x, dtype=torch.int64), [2 * size for size in shape[2:]])


def test_layouts_of_kernels_that_torch_has_other_rules_for_are_those_of_the_kernels() -> None:
    dice = Random(1)  # noqa: S311 - no secret
    asked: set[OpOverload] = set()
    for _ in range(30):
        shape = [dice.choice([2, 3]), dice.choice([4, 6]), dice.choice([2, 5]), dice.choice([4, 8])]
        for op, args in _gradients(dice, shape):
            asked.add(op)
            made = op(*args)
            first = made[0] if isinstance(made, tuple) else made
            assert KERNEL_LAYOUTS[op](*args) == first.stride(), (op, [one.stride() for one in tensors_in(args)])
    assert asked == set(KERNEL_LAYOUTS)


_REFUSED = (
    (aten.sum.dim_IntList, ([7],)),
    (aten.mean.dim, ([-5],)),
    (aten.sum.dim_IntList, ([0, -2],)),
    (aten.amax.default, ([0, 0],)),
    (aten.linalg_vector_norm.default, (2, [9])),
    (aten._softmax.default, (5, False)),
    (aten.roll.default, ([1], [5])),
    (aten.roll.default, ([1], [0, 1])),
    (aten.view.default, ([-1, -1],)),
    (aten.view.default, ([-4, -6],)),
    (aten.native_layer_norm.default, ([5], None, None, 1e-5)),
    (aten.native_layer_norm.default, ([6], torch.ones(4), None, 1e-5)),
)


@pytest.mark.parametrize(("op", "rest"), _REFUSED)
def test_a_call_that_torch_refuses_is_refused_without_data_too(op: OpOverload, rest: tuple[Any, ...]) -> None:
    x = torch.rand(4, 6)
    with pytest.raises((IndexError, RuntimeError)):
        op(x, *rest)
    world = FakeWorld()
    stand_ins = map_tensors(world.make, (x, *rest))

    with pytest.raises((IndexError, RuntimeError)):
        world.run_unknown(op, stand_ins, {})


def test_windows_that_torch_refuses_are_refused_without_data_too() -> None:
    x, world = torch.rand(1, 2, 8, 8), FakeWorld()
    weight, no, ones = torch.rand(2, 2, 3, 3), [0, 0], [1, 1]
    calls: list[tuple[OpOverload, tuple[Any, ...]]] = [
        (aten.max_pool2d_with_indices.default, (x, [2, 2], [2, 2], [2, 2])),
        (aten.avg_pool2d.default, (x, [2, 2], [2, 2], [2, 2])),
        (aten.convolution.default, (x, weight, None, no, no, ones, False, no, 1)),
        (aten.convolution.default, (x, weight, None, ones, [-1, -1], ones, False, no, 1)),
        (aten.cat.default, ([x, x], 9)),
    ]
    for op, args in calls:
        with pytest.raises((IndexError, RuntimeError)):
            op(*args)
        with pytest.raises((IndexError, RuntimeError)):
            world.run_unknown(op, map_tensors(world.make, args), {})


@pytest.mark.parametrize("shape", [(), (3, 4)])
def test_reductions_of_everything_are_left_to_fake_tensors(shape: tuple[int, ...]) -> None:
    x, world = torch.rand(shape), FakeWorld()
    dims = () if shape else ((0,), (-1,))
    calls: list[tuple[OpOverload, tuple[Any, ...]]] = [(aten.amax.default, (x,)), (aten.var.correction, (x,))]
    for dim in dims:
        calls += [(op, (x, list(dim))) for op in (aten.sum.dim_IntList, aten.mean.dim, aten.amax.default)]
        calls.append((aten.linalg_vector_norm.default, (x, 2, list(dim))))
    for op, args in calls:
        made = world.run_unknown(op, map_tensors(world.make, args), {})

        assert _seen(made, args[0]) == _seen(op(*args), args[0]), op
