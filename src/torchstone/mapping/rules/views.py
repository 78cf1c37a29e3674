"""Ops that only look at memory differently in torch. ttnn's tensors are tiled: some of these move data there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.mapping.table import Kind, Library, NotMappedError, Tensor, maps

_END = (1 << 63) - 1


@maps("aten.view", "aten._unsafe_view", "aten.reshape", "aten._reshape_alias", kind=Kind.VIEW)
def view(tt: Library, self: Tensor, **target: object) -> Tensor:
    """Another shape; a view as another element type is something else."""
    size = target.get("size", target.get("shape"))
    if not isinstance(size, list | tuple):
        msg = "a view as another element type"
        raise NotMappedError(msg)
    return tt.reshape(self, list(size))


@maps("aten.alias", "aten.detach", "aten.lift_fresh", "aten.contiguous", "aten.positive", kind=Kind.VIEW)
def alias(tt: Library, self: Tensor, **_: object) -> Tensor:
    """The same tensor."""
    return self


@maps("aten.clone")
def clone(tt: Library, self: Tensor, memory_format: Tensor = None) -> Tensor:
    """A copy."""
    return tt.clone(self)


@maps("aten._to_copy", "aten.to")
def to_copy(tt: Library, self: Tensor, dtype: str | None = None, **_: object) -> Tensor:
    """Another element type; another device is none here."""
    return self if dtype is None else tt.as_dtype(self, dtype)


@maps("aten.unsqueeze", kind=Kind.VIEW)
def unsqueeze(tt: Library, self: Tensor, dim: int) -> Tensor:
    """One more dimension of size 1."""
    place = dim % (len(self.shape) + 1)
    return tt.reshape(self, [*self.shape[:place], 1, *self.shape[place:]])


@maps("aten.squeeze", kind=Kind.VIEW)
def squeeze(tt: Library, self: Tensor, dim: Tensor = None) -> Tensor:
    """Without dimensions of size 1."""
    rank = len(self.shape)
    named = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {one % rank for one in named} if rank else set()
    return tt.reshape(self, [size for place, size in enumerate(self.shape) if place not in gone or size != 1])


@maps("aten.expand", kind=Kind.VIEW)
def expand(tt: Library, self: Tensor, size: Sequence[int], implicit: Tensor = False) -> Tensor:
    """Dimensions of size 1 repeated."""
    padded = [1] * (len(size) - len(self.shape)) + list(self.shape)
    wanted = [old if new == -1 else new for old, new in zip(padded, size, strict=True)]
    source = self if padded == list(self.shape) else tt.reshape(self, padded)
    return source if wanted == padded else tt.expand(source, wanted)


@maps("aten.permute", kind=Kind.VIEW)
def permute(tt: Library, self: Tensor, dims: Sequence[int]) -> Tensor:
    """Another order of dimensions."""
    return tt.permute(self, [dim % len(self.shape) for dim in dims])


@maps("aten.transpose", kind=Kind.VIEW)
def transpose(tt: Library, self: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions swapped."""
    rank = max(1, len(self.shape))
    first, second = dim0 % rank, dim1 % rank
    return self if first == second else tt.transpose(self, first, second)


@maps("aten.t", kind=Kind.VIEW)
def t(tt: Library, self: Tensor) -> Tensor:
    """A matrix on its side; better fused: `transpose_b=True` of matmul and linear."""
    return tt.transpose(self, 0, 1) if len(self.shape) > 1 else self


@maps("aten.movedim", kind=Kind.VIEW)
def movedim(tt: Library, self: Tensor, source: Tensor, destination: Tensor) -> Tensor:
    """Dimensions to other places."""
    rank = len(self.shape)
    moved = [one % rank for one in ([source] if isinstance(source, int) else source)]
    places = [one % rank for one in ([destination] if isinstance(destination, int) else destination)]
    rest = iter([dim for dim in range(rank) if dim not in moved])
    found = dict(zip(places, moved, strict=True))
    return tt.permute(self, [found[place] if place in found else next(rest) for place in range(rank)])


@maps("aten.select", kind=Kind.VIEW)
def select(tt: Library, self: Tensor, dim: int, index: int) -> Tensor:
    """One slice, and its dimension taken out."""
    dim %= len(self.shape)
    index %= self.shape[dim]
    part = _cut(tt, self, dim, index, index + 1)
    return tt.reshape(part, [*self.shape[:dim], *self.shape[dim + 1 :]])


@maps("aten.slice", kind=Kind.VIEW)
def slice_(
    tt: Library, self: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A range of one dimension."""
    dim %= len(self.shape)
    size = self.shape[dim]
    first, last, _ = slice(start, None if end is None or end >= _END else end).indices(size)
    if (first, last, step) == (0, size, 1):
        return self
    return _cut(tt, self, dim, first, max(first, last), step)


def _cut(tt: Library, tensor: Tensor, dim: int, first: int, last: int, step: int = 1) -> Tensor:
    if first >= last:
        return tt.nothing([*tensor.shape[:dim], 0, *tensor.shape[dim + 1 :]], tensor.dtype)
    starts, ends, steps = [0] * len(tensor.shape), list(tensor.shape), [1] * len(tensor.shape)
    starts[dim], ends[dim], steps[dim] = first, last, step
    return tt.slice(tensor, starts, ends, steps)


@maps("aten.narrow", kind=Kind.VIEW)
def narrow(tt: Library, self: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A range of one dimension."""
    dim %= len(self.shape)
    return _cut(tt, self, dim, start % self.shape[dim], start % self.shape[dim] + length)


@maps("aten.split", "aten.split_with_sizes", "aten.chunk", "aten.unsafe_split", kind=Kind.VIEW)
def split(tt: Library, self: Tensor, dim: int = 0, **how: Any) -> Tensor:
    """Slices, one after the other."""
    dim %= len(self.shape)
    size = self.shape[dim]
    wanted = how.get("split_sizes", how.get("split_size", how.get("split_size_or_sections")))
    if wanted is None:
        wanted = -(-size // how["chunks"])
    sizes = wanted if isinstance(wanted, list | tuple) else [min(wanted, size - at) for at in range(0, size, wanted)]
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [_cut(tt, self, dim, end - part, end) for part, end in zip(sizes, ends, strict=True)]


@maps("aten.unbind", kind=Kind.VIEW)
def unbind(tt: Library, self: Tensor, dim: int = 0) -> Tensor:
    """Every slice of a dimension."""
    return [select(tt, self, dim, index) for index in range(self.shape[dim % len(self.shape)])]


@maps("aten.unfold", kind=Kind.VIEW)
def unfold(tt: Library, self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows, one after the other, their elements last."""
    dim = dimension % len(self.shape)
    windows = []
    for start in range(0, self.shape[dim] - size + 1, step):
        part = _cut(tt, self, dim, start, start + size)
        order = [one for one in range(len(self.shape)) if one != dim]
        turned = tt.permute(part, [*order, dim])
        windows.append(tt.reshape(turned, [*turned.shape[:dim], 1, *turned.shape[dim:]]))
    return windows[0] if len(windows) == 1 else tt.concat(windows, dim)


# --- Joining and repeating: these move data in torch, too ---


@maps("aten.cat", "aten.concat")
def cat(tt: Library, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors without elements, such as an empty cache, add nothing."""
    whole = [one for one in tensors if 0 not in one.shape]
    if len(whole) == 1:
        return whole[0]
    if len({one.dtype for one in whole}) > 1:  # as torch promotes them: a float beside an integer makes floats
        wanted = next((one.dtype for one in whole if "float" in one.dtype), whole[0].dtype)
        whole = [tt.as_dtype(one, wanted) for one in whole]
    return tt.concat(whole, dim % len(whole[0].shape))


@maps("aten.stack")
def stack(tt: Library, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """A new dimension in each, then joined."""
    return tt.concat([unsqueeze(tt, one, dim) for one in tensors], dim % (len(tensors[0].shape) + 1))


@maps("aten.repeat")
def repeat(tt: Library, self: Tensor, repeats: Sequence[int]) -> Tensor:
    """Whole copies in each dimension."""
    padded = [1] * (len(repeats) - len(self.shape)) + list(self.shape)
    source = self if padded == list(self.shape) else tt.reshape(self, padded)
    return tt.repeat(source, list(repeats))


@maps("aten.flip")
def flip(tt: Library, self: Tensor, dims: Sequence[int]) -> Tensor:
    """Slices of one, joined from the last to the first."""
    for dim in (one % len(self.shape) for one in dims):
        size = self.shape[dim]
        if size > 64:  # noqa: PLR2004 - a program of more slices is no answer
            msg = "a flip of more than 64 slices"
            raise NotMappedError(msg)
        self = tt.concat([_cut(tt, self, dim, at, at + 1) for at in reversed(range(size))], dim)
    return self


@maps("aten.roll")
def roll(tt: Library, self: Tensor, shifts: Tensor, dims: Tensor = ()) -> Tensor:
    """Two slices change places, in each dimension."""
    moves = [shifts] if isinstance(shifts, int) else list(shifts)
    places = [dims] if isinstance(dims, int) else list(dims)
    if len(moves) != len(places):
        msg = "a roll over the flattened tensor"
        raise NotMappedError(msg)
    found = self
    for shift, dim in zip(moves, places, strict=True):
        dim %= len(self.shape)  # noqa: PLW2901 - counted from the front
        at = -shift % self.shape[dim]
        if at:
            size = self.shape[dim]
            found = tt.concat([_cut(tt, found, dim, at, size), _cut(tt, found, dim, 0, at)], dim)
    return found


@maps("aten.constant_pad_nd")
def constant_pad(tt: Library, self: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """Padding from the last dimension on; a negative one cuts. In front of a tile, ttnn wants rows."""
    rank = len(self.shape)
    pairs = [(0, 0)] * (rank - len(pad) // 2)
    pairs += [(pad[at], pad[at + 1]) for at in reversed(range(0, len(pad), 2))]
    found = self
    for dim, (before, after) in enumerate(pairs):
        if before < 0 or after < 0:
            found = _cut(tt, found, dim, max(0, -before), found.shape[dim] + min(0, after))
    added = [(max(0, before), max(0, after)) for before, after in pairs]
    if not any(map(any, added)):
        return found
    rows = any(before for before, _ in added)
    padded = tt.pad(tt.as_rows(found) if rows else found, added, float(value))
    return tt.as_tiles(padded) if rows else padded


@maps("aten.as_strided", kind=Kind.VIEW, note="memory of any strides: tiles have none")
def as_strided(
    tt: Library, self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Only where it says again what is there: one dimension of neighbouring elements, the others of size 1."""
    long = [step for count, step in zip(size, stride, strict=True) if count != 1]
    if list(size) == list(self.shape) and long in ([], [1]) and not storage_offset:
        return self
    msg = "memory of any strides: tiles have none"
    raise NotMappedError(msg)


@maps("aten.view_as_complex", kind=Kind.VIEW)
def view_as_complex(tt: Library, self: Tensor) -> Tensor:
    """The same tensor; ttnn keeps the two parts as a last dimension."""
    return tt.as_complex(self)


@maps("aten.view_as_real", kind=Kind.VIEW)
def view_as_real(tt: Library, self: Tensor) -> Tensor:
    """The same tensor, with its parts as a last dimension again."""
    return tt.as_real(self)
