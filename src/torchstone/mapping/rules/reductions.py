"""Reductions, and ops that order elements."""

from __future__ import annotations

from torchstone.mapping.table import Library, NotMappedError, Tensor, maps


def _dims(tensor: Tensor, dim: Tensor) -> list[int]:
    rank = len(tensor.shape)
    if dim is None or dim == []:
        return list(range(rank))
    return [one % rank for one in ([dim] if isinstance(dim, int) else dim)] if rank else []


def _reduced(tt: Library, name: str, tensor: Tensor, dim: Tensor, keepdim: Tensor) -> Tensor:
    """One call; ttnn keeps the rank where asked to, like torch."""
    dims = _dims(tensor, dim)
    if not dims:
        return tensor
    found = getattr(tt, name)(tensor, dims if len(dims) > 1 else dims[0], keepdim=True)
    sizes = [1 if place in dims else size for place, size in enumerate(tensor.shape)]
    wanted = sizes if keepdim else [size for place, size in enumerate(sizes) if place not in dims]
    return tt.reshape(found, wanted) if list(found.shape) != wanted else found


@maps("aten.mean")
def mean(tt: Library, self: Tensor, dim: Tensor = None, keepdim: Tensor = False, dtype: Tensor = None) -> Tensor:
    """The same op."""
    return _reduced(tt, "mean", self, dim, keepdim)


@maps("aten.sum")
def sum_(tt: Library, self: Tensor, dim: Tensor = None, keepdim: Tensor = False, dtype: Tensor = None) -> Tensor:
    """The same op, in floating point."""
    return _reduced(tt, "sum", tt.as_float(self), dim, keepdim)


@maps("aten.amax")
def amax(tt: Library, self: Tensor, dim: Tensor = None, keepdim: Tensor = False) -> Tensor:
    """The same op under another name."""
    return _reduced(tt, "max", self, dim, keepdim)


@maps("aten.amin")
def amin(tt: Library, self: Tensor, dim: Tensor = None, keepdim: Tensor = False) -> Tensor:
    """The same op under another name."""
    return _reduced(tt, "min", self, dim, keepdim)


def _extreme(name: str, index: str) -> Tensor:
    def rule(tt: Library, self: Tensor, dim: Tensor = None, keepdim: Tensor = False, other: Tensor = None) -> Tensor:
        if other is not None:
            return getattr(tt, f"{name}imum")(self, other)
        if dim is None:
            return _reduced(tt, name, self, None, keepdim=False)
        return _reduced(tt, name, self, dim, keepdim), _arg(tt, index, self, dim, keepdim)

    return rule


maps("aten.max")(_extreme("max", "argmax"))
maps("aten.min")(_extreme("min", "argmin"))


def _arg(tt: Library, name: str, tensor: Tensor, dim: Tensor, keepdim: Tensor) -> Tensor:
    """The place of the largest; of the smallest, that of the largest of the negated. ttnn looks along rows."""
    source = tt.as_float(tensor)
    source = tt.neg(source) if name == "argmin" else source
    if dim is None:
        flat = 1
        for size in tensor.shape:
            flat *= size
        return tt.reshape(tt.argmax(tt.as_rows(tt.reshape(source, [1, flat])), -1), [])
    rank = len(tensor.shape)
    dim %= rank
    turned = source if dim == rank - 1 else tt.transpose(source, dim, rank - 1)
    found = tt.argmax(tt.as_rows(turned), -1, keepdim=True)
    back = found if dim == rank - 1 else tt.transpose(found, dim, rank - 1)
    sizes = [1 if place == dim else size for place, size in enumerate(tensor.shape)]
    wanted = sizes if keepdim else sizes[:dim] + sizes[dim + 1 :]
    return tt.reshape(back, wanted) if list(back.shape) != wanted else back


@maps("aten.argmax")
def argmax(tt: Library, self: Tensor, dim: Tensor = None, keepdim: Tensor = False) -> Tensor:
    """Along the last dimension, in rows."""
    return _arg(tt, "argmax", self, dim, keepdim)


@maps("aten.argmin")
def argmin(tt: Library, self: Tensor, dim: Tensor = None, keepdim: Tensor = False) -> Tensor:
    """The largest of the negated."""
    return _arg(tt, "argmin", self, dim, keepdim)


@maps("aten.all")
def all_(tt: Library, self: Tensor, dim: Tensor = None, keepdim: Tensor = False) -> Tensor:
    """The smallest of zeros and ones."""
    return _reduced(tt, "min", tt.ne(tt.as_float(self), 0.0), dim, keepdim)


@maps("aten.any")
def any_(tt: Library, self: Tensor, dim: Tensor = None, keepdim: Tensor = False) -> Tensor:
    """The largest of zeros and ones."""
    return _reduced(tt, "max", tt.ne(tt.as_float(self), 0.0), dim, keepdim)


@maps("aten._is_all_true")
def is_all_true(tt: Library, self: Tensor) -> Tensor:
    """The same as all."""
    return all_(tt, self)


@maps("aten._is_any_true")
def is_any_true(tt: Library, self: Tensor) -> Tensor:
    """The same as any."""
    return any_(tt, self)


@maps("aten.histc")
def histc(tt: Library, self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Each element compared with every bin, then counted; elements outside the limits fall into none."""
    if min == max:
        msg = "a histogram between the limits that its elements have"
        raise NotMappedError(msg)
    count = 1
    for size in self.shape:
        count *= size
    flat = tt.reshape(tt.as_float(self), [count, 1])
    place = tt.floor(tt.multiply(tt.subtract(flat, float(min)), bins / (max - min)))
    place = tt.broadcast_to(tt.clamp(place, max=bins - 1.0), [count, bins])  # the upper limit is in the last bin
    numbers = tt.broadcast_to(tt.reshape(tt.arange(0, bins, 1, flat.dtype), [1, bins]), [count, bins])
    inside = tt.logical_and(tt.ge(flat, float(min)), tt.le(flat, float(max)))
    found = tt.logical_and(tt.eq(place, numbers), tt.broadcast_to(inside, [count, bins]))
    return tt.reshape(tt.sum(tt.as_float(found), 0, keepdim=True), [bins])


def _variance(tt: Library, tensor: Tensor, dim: Tensor, correction: Tensor) -> tuple[Tensor, Tensor]:
    dims = _dims(tensor, dim)
    count = 1
    for place in dims:
        count *= tensor.shape[place]
    middle = _reduced(tt, "mean", tensor, dims, keepdim=True)
    squares = tt.square(tt.subtract(tensor, middle))
    free = count - (1 if correction is None else correction)
    total = _reduced(tt, "sum", squares, dims, keepdim=True)
    return tt.multiply(total, 1.0 / free if free else float("inf")), middle


def _without(tt: Library, tensor: Tensor, source: Tensor, dim: Tensor, keepdim: Tensor) -> Tensor:
    dims = _dims(source, dim)
    return (
        tensor
        if keepdim
        else tt.reshape(tensor, [size for place, size in enumerate(source.shape) if place not in dims])
    )


@maps("aten.var")
def var(
    tt: Library, self: Tensor, dim: Tensor = None, correction: Tensor = None, keepdim: Tensor = False, **old: object
) -> Tensor:
    """Squares of the distance to the mean."""
    found, _ = _variance(tt, self, dim, old.get("unbiased", correction))
    return _without(tt, found, self, dim, keepdim)


@maps("aten.std")
def std(
    tt: Library, self: Tensor, dim: Tensor = None, correction: Tensor = None, keepdim: Tensor = False, **old: object
) -> Tensor:
    """The root of the variance."""
    return tt.sqrt(var(tt, self, dim, correction, keepdim, **old))


@maps("aten.var_mean")
def var_mean(
    tt: Library, self: Tensor, dim: Tensor = None, correction: Tensor = None, keepdim: Tensor = False, **old: object
) -> Tensor:
    """Both at once."""
    found, middle = _variance(tt, self, dim, old.get("unbiased", correction))
    return _without(tt, found, self, dim, keepdim), _without(tt, middle, self, dim, keepdim)


@maps("aten.linalg_vector_norm", "aten.norm")
def vector_norm(
    tt: Library, self: Tensor, dim: Tensor = None, keepdim: Tensor = False, dtype: Tensor = None, **order: object
) -> Tensor:
    """The root of the sum of squares, or the sum of magnitudes."""
    kind = order.get("ord", order.get("p", 2))
    if kind in (2, None):
        return tt.sqrt(_reduced(tt, "sum", tt.square(self), dim, keepdim))
    if kind == 1:
        return _reduced(tt, "sum", tt.abs(self), dim, keepdim)
    msg = f"a norm of order {kind}"
    raise NotMappedError(msg)


@maps("aten.prod")
def prod(tt: Library, self: Tensor, dim: Tensor = None, keepdim: Tensor = False, dtype: Tensor = None) -> Tensor:
    """The same op along one dimension."""
    if dim is None:
        msg = "a product of all elements"
        raise NotMappedError(msg)
    return _reduced(tt, "prod", self, dim, keepdim)


@maps("aten.logsumexp")
def logsumexp(tt: Library, self: Tensor, dim: Tensor, keepdim: Tensor = False) -> Tensor:
    """Shifted by the largest, so that nothing overflows."""
    top = _reduced(tt, "max", self, dim, keepdim=True)
    total = _reduced(tt, "sum", tt.exp(tt.subtract(self, top)), dim, keepdim=True)
    return _without(tt, tt.add(tt.log(total), top), self, dim, keepdim)


@maps("aten.cumsum")
def cumsum(tt: Library, self: Tensor, dim: int, dtype: Tensor = None) -> Tensor:
    """The same op."""
    return tt.cumsum(tt.as_float(self), dim % len(self.shape)) if self.shape else self


@maps("aten.topk")
def topk(tt: Library, self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Tensor:
    """The same op, in floating point."""
    return tt.topk(tt.as_float(self), k, dim % len(self.shape), largest, sorted)


@maps("aten.sort")
def sort(tt: Library, self: Tensor, dim: int = -1, descending: bool = False, stable: Tensor = None) -> Tensor:
    """The same op, in floating point."""
    return tt.sort(tt.as_float(self), dim % len(self.shape), descending)


@maps("aten.argsort")
def argsort(tt: Library, self: Tensor, dim: int = -1, descending: bool = False, **_: object) -> Tensor:
    """The indices of a sort."""
    return tt.sort(tt.as_float(self), dim % len(self.shape), descending)[1]
