"""What the cache of a model takes for each token, read off from the cache it gave back."""

from collections.abc import Iterator

from torchstone.record.base import Record
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace
from torchstone.record.value import Entries, Fields, Items, Value

_CACHES = ("past_key_values", "cache_params", "past_buckets_states", "mems", "cache")
_KEYS_AND_VALUES = 4  # (batch, heads, tokens, width)
_TOKENS = 2
_BOUNDED = ("Sliding", "Static", "Chunked")  # classes whose layers stop growing, or never grow
_WINDOW = "sliding_window"  # the field that tells where


class CacheNeeds(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The cache of one run: what grows by the token, what stays, and what cannot be told."""

    tokens: int  # in the cache of the run
    elements_per_token: int  # over all layers and sequences of the batch
    windows: dict[int, int]  # tokens of a sliding window -> elements a token of the layers that have it
    fixed_elements: int  # states, and keys of an encoder
    dtype: str
    tensors: int
    not_known: int  # tensors that may or may not grow

    def elements_at(self, tokens: int) -> int:
        """Elements of a cache of so many tokens; a layer with a window holds no more than that."""
        in_windows = sum(elements * min(tokens, window) for window, elements in self.windows.items())
        return self.elements_per_token * tokens + in_windows + self.fixed_elements


class _Found(Record, frozen=True, kw_only=True):
    spec: TensorSpec
    path: str
    bounded: bool
    window: int | None

    @property
    def per_token(self) -> int:
        return self.spec.elements // max(self.spec.shape[_TOKENS], 1)


def cache_needs(trace: Trace) -> CacheNeeds | None:
    """The cache that the model's output holds; None when it gives none back."""
    if not len(trace.module_calls):
        return None
    output = trace.module_calls[0].signature.output
    found = [one for name, value in _named(output) if name in _CACHES for one in _tensors(value, name)]
    if not found:
        return None
    growing = [one for one in found if _grows(one)]
    windowed = [one for one in found if one.window is not None and _has_tokens(one)]
    fixed = [one for one in found if not _grows(one) and not one.bounded]
    windows: dict[int, int] = {}
    for one in windowed:
        assert one.window is not None  # noqa: S101 - chosen so above
        windows[one.window] = windows.get(one.window, 0) + one.per_token
    return CacheNeeds(
        tokens=max((one.spec.shape[_TOKENS] for one in (*growing, *windowed)), default=0),
        elements_per_token=sum(one.per_token for one in growing),
        windows=windows,
        fixed_elements=sum(one.spec.elements for one in fixed),
        dtype=found[0].spec.dtype,
        tensors=len(found),
        not_known=len(found) - len(growing) - len(windowed) - len(fixed),
    )


def _has_tokens(one: _Found) -> bool:
    return len(one.spec.shape) == _KEYS_AND_VALUES and "cross" not in one.path


def _grows(one: _Found) -> bool:
    return _has_tokens(one) and not one.bounded


def _tensors(value: Value, path: str, around: Fields | None = None) -> Iterator[_Found]:
    """The tensors inside a value but for single numbers, which only keep count."""
    if isinstance(value, TensorSpec):
        if value.shape:
            yield _found(value, path, around)
        return
    inner = value if isinstance(value, Fields) and any(word in value.class_name for word in _BOUNDED) else around
    for name, part in _named(value):
        yield from _tensors(part, f"{path}.{name}", inner)


def _found(spec: TensorSpec, path: str, bounded_by: Fields | None) -> _Found:
    window = None if bounded_by is None else dict(bounded_by.fields).get(_WINDOW)
    return _Found(
        spec=spec, path=path, bounded=bounded_by is not None, window=window if isinstance(window, int) else None
    )


def _named(value: Value) -> Iterator[tuple[str, Value]]:
    match value:
        case Fields(fields=fields):
            yield from fields
        case Entries(entries=entries):
            yield from ((str(key), part) for key, part in entries)
        case Items(items=items):
            yield from ((str(place), part) for place, part in enumerate(items))
        case _:
            return
