"""Calls of torch.nn classes that a shipped formula must give or refuse: switches, single and empty sizes, layouts."""

from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor, nn

from tests.formula.derive.benches import seeded

Case = tuple[str, nn.Module, tuple[object, ...]]
BOTH = (True, False)
LEADING = ((), (1,), (5,), (2, 3), (1, 1), (5, 1), (0,))


def pointwise() -> Iterator[Case]:
    """Activations of every rank, in place, of integers, and strided."""
    shapes: list[Tensor] = [torch.zeros(size) for size in ((1,), (7,), (2, 3), (0, 3), (4, 5, 6), ())]
    for x in (*shapes, torch.zeros(4, 6).t()):
        for make in (nn.ReLU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.Dropout, nn.Identity):
            yield f"{make.__name__} {tuple(x.shape)}", make(), (x,)
        yield f"GELU tanh {tuple(x.shape)}", nn.GELU(approximate="tanh"), (x,)
        yield f"ReLU in place {tuple(x.shape)}", nn.ReLU(inplace=True), (x,)
    yield "ReLU of integers", nn.ReLU(), (torch.zeros(4, dtype=torch.int64),)


def linear() -> Iterator[Case]:
    """Single features, any leading sizes, strided inputs."""
    for inside, outside, bias, leading in product((1, 7, 64), (1, 3), BOTH, LEADING):
        name = f"Linear {leading} {inside} {outside} {bias}"
        yield name, nn.Linear(inside, outside, bias=bias), (torch.zeros(*leading, inside),)
    yield "Linear strided", nn.Linear(6, 3), (torch.zeros(2, 6, 4).transpose(1, 2),)


def norms() -> Iterator[Case]:
    """Widths of 1 and of two dimensions, without weights, of mixed element types."""
    for shape, affine, bias, leading in product(((8,), (1,), (3, 4), (2, 1)), BOTH, BOTH, LEADING):
        x = torch.zeros(*leading, *shape)
        yield f"LayerNorm {leading} {shape} {affine} {bias}", nn.LayerNorm(shape, 1e-5, affine, bias), (x,)
        yield f"RMSNorm {leading} {shape} {affine}", nn.RMSNorm(shape, elementwise_affine=affine), (x,)
    yield "LayerNorm mixed", nn.LayerNorm(8), (torch.zeros(3, 8, dtype=torch.bfloat16),)
    for batch, channels, side, affine, tracked in product((1, 3), (1, 5), (1, 4), BOTH, BOTH):
        module = nn.BatchNorm2d(channels, affine=affine, track_running_stats=tracked)
        yield (
            f"BatchNorm2d {batch} {channels} {side} {affine} {tracked}",
            module,
            (torch.zeros(batch, channels, side, 6),),
        )


def embedding() -> Iterator[Case]:
    """No tokens, one row, norms that are clipped, other index types, repeated tokens."""
    for leading, rows in product(LEADING, (1, 5, 40)):
        yield f"Embedding {leading} {rows}", nn.Embedding(rows, 8), (torch.zeros(leading, dtype=torch.int64),)
    tokens = torch.zeros(3, dtype=torch.int64)
    yield "Embedding clipped", nn.Embedding(5, 8, max_norm=1.0), (tokens,)
    yield "Embedding int32", nn.Embedding(5, 8), (tokens.int(),)
    yield "Embedding expanded", nn.Embedding(5, 8), (tokens.expand(4, 3),)


def convolutions() -> Iterator[Case]:
    """Random settings, padding by name and by other modes, one sample, no batch."""
    random = seeded(3)
    for _ in range(60):
        groups, inside, outside = (random.choice((1, 2, 3)) for _ in range(3))
        kernel, stride, padding, dilation = (random.randint(1, 4) for _ in range(4))
        size = random.randint(dilation * (kernel - 1) + 1, 33)
        x = torch.zeros(random.choice((1, 3)), inside * groups, size)
        setting = (inside * groups, outside * groups, kernel, stride, padding, dilation, groups, random.random() < 0.5)
        yield f"Conv1d {setting} {size}", nn.Conv1d(*setting), (x,)
        yield f"Conv2d {setting} {size}", nn.Conv2d(*setting), (x[..., None].expand(-1, -1, -1, size).contiguous(),)
    for mode in ("circular", "reflect", "replicate"):
        yield f"Conv2d {mode}", nn.Conv2d(3, 4, 3, padding=1, padding_mode=mode), (torch.zeros(2, 3, 8, 8),)
    for name, width in product(("same", "valid"), (2, 3)):
        yield f"Conv1d {name} {width}", nn.Conv1d(3, 4, width, padding=name), (torch.zeros(2, 3, 8),)
    yield "Conv2d without batch", nn.Conv2d(3, 4, 3), (torch.zeros(3, 8, 8),)


def attention() -> Iterator[Case]:
    """One sample, one token, one head, both layouts; cross attention, masks and extra keys."""
    for first, bias, heads, batch, length in product(BOTH, BOTH, (1, 2, 3), (1, 4), (1, 7)):
        x = torch.zeros((batch, length, 16 * heads) if first else (length, batch, 16 * heads))
        module = nn.MultiheadAttention(16 * heads, heads, bias=bias, batch_first=first)
        for weights in BOTH:
            yield f"attention {first} {bias} {heads} {batch} {length} {weights}", module, (x, x, x, None, weights)
    x, longer, narrow = torch.zeros(2, 5, 16), torch.zeros(2, 9, 16), torch.zeros(2, 5, 8)
    plain = nn.MultiheadAttention(16, 2, batch_first=True)
    yield "cross attention", plain, (x, longer, longer)
    yield "cross attention of equal length", plain, (x, x.clone(), x.clone())
    yield "attention with a mask", plain, (x, x, x, torch.zeros(2, 5, dtype=torch.bool))
    yield "attention without batch", plain, (x[0], x[0], x[0])
    yield "attention with kdim", nn.MultiheadAttention(16, 2, kdim=8, batch_first=True), (x, narrow, x)
    yield "attention with bias_kv", nn.MultiheadAttention(16, 2, add_bias_kv=True, batch_first=True), (x, x, x)
    yield "attention with zeros", nn.MultiheadAttention(16, 2, add_zero_attn=True, batch_first=True), (x, x, x)


def encoder_layer() -> Iterator[Case]:
    """Every order, layout and activation, one sample and one token."""
    kinds: tuple[str | Callable[[Tensor], Tensor], ...] = ("relu", "gelu", torch.tanh)
    for before, first, kind, bias, heads, batch, length in product(BOTH, BOTH, kinds, BOTH, (2, 3), (1, 3), (1, 6)):
        module = nn.TransformerEncoderLayer(
            12 * heads, heads, 20, 0.1, kind, batch_first=first, norm_first=before, bias=bias
        )
        x = torch.zeros((batch, length, 12 * heads) if first else (length, batch, 12 * heads))
        yield f"layer {before} {first} {kind} {bias} {heads} {batch} {length}", module, (x,)


GROUPS = {one.__name__: one for one in (pointwise, linear, norms, embedding, convolutions, attention, encoder_layer)}
