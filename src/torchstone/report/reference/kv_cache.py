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


class CacheNeeds(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The cache of one run: what grows by the token, what stays, and what cannot be told."""

    tokens: int  # in the cache of the run
    elements_per_token: int  # over all layers and sequences of the batch
    fixed_elements: int  # states, and keys of an encoder
    dtype: str
    tensors: int
    not_known: int  # tensors that may or may not grow


class _Found(Record, frozen=True, kw_only=True):
    spec: TensorSpec
    path: str
    bounded: bool


def cache_needs(trace: Trace) -> CacheNeeds | None:
    """The cache that the model's output holds; None when it gives none back."""
    if not len(trace.module_calls):
        return None
    output = trace.module_calls[0].signature.output
    found = [one for name, value in _named(output) if name in _CACHES for one in _tensors(value, name)]
    if not found:
        return None
    growing = [one for one in found if _grows(one)]
    bounded = [one for one in found if one.bounded]
    fixed = [one for one in found if not _grows(one) and not one.bounded]
    tokens = max((one.spec.shape[_TOKENS] for one in growing), default=0)
    return CacheNeeds(
        tokens=tokens,
        elements_per_token=sum(one.spec.elements // max(one.spec.shape[_TOKENS], 1) for one in growing),
        fixed_elements=sum(one.spec.elements for one in fixed),
        dtype=found[0].spec.dtype,
        tensors=len(found),
        not_known=len(bounded),
    )


def _grows(one: _Found) -> bool:
    return len(one.spec.shape) == _KEYS_AND_VALUES and "cross" not in one.path and not one.bounded


def _tensors(value: Value, path: str, *, bounded: bool = False) -> Iterator[_Found]:
    if isinstance(value, TensorSpec):
        yield _Found(spec=value, path=path, bounded=bounded)
        return
    if isinstance(value, Fields):
        bounded = bounded or any(word in value.class_name for word in _BOUNDED)
    for name, part in _named(value):
        yield from _tensors(part, f"{path}.{name}", bounded=bounded)


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
