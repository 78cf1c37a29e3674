"""Tensors that are made, and elements that are looked up or written by index."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.mapping.table import Kind, Library, NotMappedError, Number, Tensor, maps, without_counterpart


@maps("aten.arange", kind=Kind.CREATE)
def arange(
    tt: Library, end: Number, start: Number = 0, step: Number = 1, dtype: str | None = None, **_: object
) -> Tensor:
    """Numbers in a row; their element type is that of the limits where none is named."""
    whole = all(isinstance(one, int) for one in (start, end, step))
    return tt.arange(start, end, step, dtype or ("int64" if whole else "float32"))


@maps("aten.full", "aten.new_full", kind=Kind.CREATE)
def full(
    tt: Library, size: Sequence[int], fill_value: Number, dtype: str | None = None, self: Tensor = None, **_: object
) -> Tensor:
    """One value everywhere."""
    return tt.full(list(size), fill_value, dtype or (self.dtype if self is not None else _dtype_of(fill_value)))


def _dtype_of(value: Number) -> str:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


@maps("aten.zeros", "aten.new_zeros", "aten.empty", "aten.new_empty", "aten.empty_strided", kind=Kind.CREATE)
def zeros(tt: Library, size: Sequence[int], dtype: str | None = None, self: Tensor = None, **_: object) -> Tensor:
    """Zeros; for memory that was not filled, too."""
    return tt.full(list(size), 0, dtype or (self.dtype if self is not None else "float32"))


@maps("aten.ones", "aten.new_ones", kind=Kind.CREATE)
def ones(tt: Library, size: Sequence[int], dtype: str | None = None, self: Tensor = None, **_: object) -> Tensor:
    """Ones."""
    return tt.full(list(size), 1, dtype or (self.dtype if self is not None else "float32"))


@maps("aten.rand", kind=Kind.CREATE, note="other numbers than torch draws")
def rand(tt: Library, size: Sequence[int], dtype: str | None = None, **_: object) -> Tensor:
    """Even numbers from 0 to 1; no two generators draw the same."""
    return tt.random(list(size), dtype or "float32")


@maps("aten.scalar_tensor", kind=Kind.CREATE)
def scalar_tensor(tt: Library, s: Tensor, dtype: str | None = None, **_: object) -> Tensor:
    """A tensor of one value."""
    return tt.full([], s, dtype or "float32")


def _like(value: float) -> Tensor:
    def rule(tt: Library, self: Tensor, dtype: str | None = None, **_: object) -> Tensor:
        return tt.full(list(self.shape), value, dtype or self.dtype)

    return rule


maps("aten.zeros_like", "aten.empty_like", kind=Kind.CREATE)(_like(0))
maps("aten.ones_like", kind=Kind.CREATE)(_like(1))


@maps("aten.full_like", kind=Kind.CREATE)
def full_like(tt: Library, self: Tensor, fill_value: Number, dtype: str | None = None, **_: object) -> Tensor:
    """One value everywhere."""
    return tt.full(list(self.shape), fill_value, dtype or self.dtype)


@maps("aten.linspace", kind=Kind.CREATE)
def linspace(tt: Library, start: float, end: float, steps: int, **_: object) -> Tensor:
    """Numbers in a row, stretched."""
    if steps == 1:
        return tt.full([1], start, "float32")
    scaled = tt.multiply(tt.arange(0, steps, 1, "float32"), (end - start) / (steps - 1))
    return tt.add(scaled, float(start))


@maps("aten.fill", "aten.zero")
def fill(tt: Library, self: Tensor, value: Number = 0) -> Tensor:
    """The tensor is replaced by one of the value."""
    if tt.is_tensor(value):
        return tt.as_dtype(tt.broadcast_to(value, self.shape), self.dtype)
    return tt.full(list(self.shape), value, self.dtype)


@maps("aten.copy")
def copy(tt: Library, self: Tensor, src: Tensor, **_: object) -> Tensor:
    """What is copied takes the place of the tensor, in its shape and element type."""
    return tt.as_dtype(tt.broadcast_to(src, self.shape), self.dtype)


@maps("aten.tril")
def tril(tt: Library, self: Tensor, diagonal: int = 0) -> Tensor:
    """The same op."""
    return tt.tril(self, diagonal=diagonal)


@maps("aten.triu")
def triu(tt: Library, self: Tensor, diagonal: int = 0) -> Tensor:
    """The same op."""
    return tt.triu(self, diagonal=diagonal)


# --- Looking up ---


@maps("aten.embedding")
def embedding(tt: Library, weight: Tensor, indices: Tensor, **_: object) -> Tensor:
    """Rows of a table; ttnn wants the indices as a matrix."""
    shape = list(indices.shape)
    flat = indices if len(shape) == 2 else tt.reshape(indices, [1, _product(shape)])  # noqa: PLR2004 - a matrix
    found = tt.embedding(tt.as_index(flat), weight)
    wanted = [*shape, weight.shape[-1]]
    return tt.reshape(found, wanted) if list(found.shape) != wanted else found


def _product(sizes: Sequence[int]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found


@maps("aten.index_select")
def index_select(tt: Library, self: Tensor, dim: int, index: Tensor) -> Tensor:
    """Rows of a table, turned so that the dimension comes first."""
    rank = len(self.shape)
    dim %= rank
    if rank == 1:
        return tt.reshape(embedding(tt, tt.reshape(self, [self.shape[0], 1]), index), list(index.shape))
    turned = self if dim == 0 else tt.transpose(self, 0, dim)
    table = tt.reshape(turned, [turned.shape[0], _product(turned.shape[1:])])
    found = tt.reshape(embedding(tt, table, index), [index.shape[0], *turned.shape[1:]])
    return found if dim == 0 else tt.transpose(found, 0, dim)


@maps("aten.index")
def index(tt: Library, self: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """One tensor of integers, or several for the first dimensions, as rows of a table."""
    given = [(place, one) for place, one in enumerate(indices) if one is not None]
    if any(one.dtype == "bool" for _, one in given):
        msg = "a mask as index: the size of its result depends on values"
        raise NotMappedError(msg)
    if len(given) == 1 and len(given[0][1].shape) == 1:
        return index_select(tt, self, *given[0])
    if [place for place, _ in given] != list(range(len(given))):
        msg = "indices of dimensions that are not the first ones"
        raise NotMappedError(msg)
    count, rest = len(given), list(self.shape[len(given) :])
    shape = _broadcast([one.shape for _, one in given])
    place: Tensor = None
    for number, (_, one) in enumerate(given):
        stride = float(_product(self.shape[number + 1 : count]))
        part = tt.as_float(tt.broadcast_to(one, shape))
        part = part if stride == 1 else tt.multiply(part, stride)
        place = part if place is None else tt.add(place, part)
    table = tt.reshape(self, [_product(self.shape[:count]), _product(rest)])
    flat = tt.reshape(place, [1, _product(shape)])
    return tt.reshape(tt.embedding(tt.as_index(flat), table), [*shape, *rest])


def _broadcast(shapes: Sequence[Sequence[int]]) -> list[int]:
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return [max(sizes) for sizes in zip(*padded, strict=True)]


@maps("aten.gather")
def gather(tt: Library, self: Tensor, dim: int, index: Tensor, sparse_grad: Tensor = False) -> Tensor:
    """The same op."""
    return tt.gather(self, dim % len(self.shape), tt.as_tiles(tt.as_index(index)))


@maps("aten.scatter")
def scatter(tt: Library, self: Tensor, dim: int, index: Tensor, **what: object) -> Tensor:
    """The same op; a single value becomes a tensor of it."""
    source = what.get("src", what.get("value"))
    if not tt.is_tensor(source):
        source = tt.full(list(index.shape), source, self.dtype)
    return tt.scatter(tt.as_rows(self), dim % len(self.shape), tt.as_index(index), tt.as_rows(source))


@maps("aten.index_put")
def index_put(
    tt: Library, self: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False, **_: object
) -> Tensor:
    """Rows that one list of integers names, as a scatter along the first dimension."""
    if (
        accumulate
        or len(indices) != 1
        or indices[0] is None
        or len(indices[0].shape) != 1
        or indices[0].dtype == "bool"
    ):
        msg = "writes at indices other than one list of rows"
        raise NotMappedError(msg)
    rows = indices[0]
    shape = [rows.shape[0], *self.shape[1:]]
    wide = tt.broadcast_to(tt.reshape(rows, [rows.shape[0], *[1] * (len(self.shape) - 1)]), shape)
    return scatter(tt, self, 0, wide, src=tt.as_dtype(tt.broadcast_to(values, shape), self.dtype))


@maps("aten.slice_scatter")
def slice_scatter(
    tt: Library,
    self: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """What lies before, the new part, what lies behind."""
    if step != 1:
        msg = "a part with steps"
        raise NotMappedError(msg)
    dim %= len(self.shape)
    size = self.shape[dim]
    first, last, _ = slice(start, None if end is None or end >= size else end).indices(size)
    return _replaced(tt, self, src, dim, first, last)


@maps("aten.select_scatter")
def select_scatter(tt: Library, self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A part of one."""
    dim %= len(self.shape)
    at = index % self.shape[dim]
    part = tt.reshape(src, [*self.shape[:dim], 1, *self.shape[dim + 1 :]])
    return _replaced(tt, self, part, dim, at, at + 1)


def _replaced(tt: Library, whole: Tensor, part: Tensor, dim: int, first: int, last: int) -> Tensor:
    starts, ends = [0] * len(whole.shape), list(whole.shape)
    pieces = []
    if first:
        pieces.append(tt.slice(whole, starts, [*ends[:dim], first, *ends[dim + 1 :]]))
    pieces.append(part)
    if last < whole.shape[dim]:
        pieces.append(tt.slice(whole, [*starts[:dim], last, *starts[dim + 1 :]], ends))
    return pieces[0] if len(pieces) == 1 else tt.concat(pieces, dim)


@maps("aten._local_scalar_dense", "aten.item", kind=Kind.HOST)
def local_scalar(tt: Library, self: Tensor) -> Tensor:
    """A value read on the host."""
    return tt.from_device(self)


without_counterpart("aten.nonzero", "the size of its result depends on values")
without_counterpart("aten.masked_scatter", "the place of each element depends on values")
without_counterpart("aten.randn", "random numbers")
without_counterpart("aten.multinomial", "random numbers")
