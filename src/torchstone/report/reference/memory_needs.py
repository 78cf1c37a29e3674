"""Memory needs of a model: weights, buffers, activations and KV cache, in each dtype."""

from collections.abc import Iterator, Sequence

from torchstone.record.base import Record
from torchstone.record.cost import CostTable
from torchstone.record.tensor import TensorSpec, element_bits
from torchstone.record.trace import Trace
from torchstone.record.value import Entries, Fields, Items, Value

# --- KV cache: elements per token, measured on the cache that the model returned ---


_CACHES = ("past_key_values", "cache_params", "past_buckets_states", "mems", "cache")
_KEYS_AND_VALUES = 4  # (batch, heads, tokens, width)
_TOKENS = 2
_BOUNDED = ("Sliding", "Static", "Chunked")  # classes whose layers stop growing, or never grow
_WINDOW = "sliding_window"  # the field that tells where


class CacheNeeds(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The cache of one run: what grows with each token, what is constant, and what is unknown."""

    tokens: int  # in the cache of the run
    elements_per_token: int  # over all layers and sequences of the batch
    windows: dict[int, int]  # tokens of a sliding window -> elements a token of the layers that have it
    fixed_elements: int  # states, and keys of an encoder
    dtype: str
    tensors: int
    not_known: int  # tensors that may or may not grow

    def elements_at(self, tokens: int) -> int:
        """Elements of a cache of this number of tokens; a layer with a window stores no more than the window."""
        in_windows = sum(elements * min(tokens, window) for window, elements in self.windows.items())
        return self.elements_per_token * tokens + in_windows + self.fixed_elements


class _FoundModel(Record, frozen=True, kw_only=True):
    spec: TensorSpec
    path: str
    bounded: bool
    window: int | None

    @property
    def per_token(self) -> int:
        return self.spec.elements // max(self.spec.shape[_TOKENS], 1)


def cache_needs(trace: Trace) -> CacheNeeds | None:
    """The cache that the model's output holds; None when it gives none back."""
    if not len(trace.recorded_calls):
        return None
    output = trace.recorded_calls[0].signature.output
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


def _has_tokens(one: _FoundModel) -> bool:
    return len(one.spec.shape) == _KEYS_AND_VALUES and "cross" not in one.path


def _grows(one: _FoundModel) -> bool:
    return _has_tokens(one) and not one.bounded


def _tensors(value: Value, path: str, around: Fields | None = None) -> Iterator[_FoundModel]:
    """The tensors inside a value but for single numbers, which only keep count."""
    if isinstance(value, TensorSpec):
        if value.shape:
            yield _found(value, path, around)
        return
    inner = value if isinstance(value, Fields) and any(word in value.class_name for word in _BOUNDED) else around
    for name, part in _named(value):
        yield from _tensors(part, f"{path}.{name}", inner)


def _found(spec: TensorSpec, path: str, bounded_by: Fields | None) -> _FoundModel:
    window = None if bounded_by is None else dict(bounded_by.fields).get(_WINDOW)
    return _FoundModel(
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


# --- Memory needs by dtype: weights, buffers, activations, cache ---


DTYPES = ("float32", "bfloat16", "float16", "int8")
DEFAULT_LENGTHS = (128, 2048, 8192, 32768)
_FLOATS = ("float", "bfloat")


class MemoryNeeds(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a model needs when its floating-point numbers have one element type; None is not known."""

    dtype: str
    weights_bytes: int | None
    buffers_bytes: int | None
    activation_peak_bytes: int | None  # of the captured run, scaled
    kv_cache_bytes: dict[int, int | None] | None  # tokens -> bytes; None: the model gives no cache back
    captured: bool  # most of the model ran in this type, and every tensor counts as it was; the rest is arithmetic


def memory_needs(trace: Trace, costs: CostTable, lengths: Sequence[int]) -> tuple[MemoryNeeds, ...]:
    """One row for each element type, that of the captured run first."""
    ran_in = _captured_dtype(trace)
    cache = cache_needs(trace)
    order = dict.fromkeys((ran_in, *DTYPES) if ran_in else DTYPES)
    weights = _specs(trace, "parameters")
    buffers = _specs(trace, "buffers")
    return tuple(
        MemoryNeeds(
            dtype=dtype,
            weights_bytes=_sum(weights, None if dtype == ran_in else dtype),
            buffers_bytes=_sum(buffers, None if dtype == ran_in else dtype),
            activation_peak_bytes=_scaled(costs.peak.activations_bytes, ran_in, dtype),
            kv_cache_bytes=None
            if cache is None
            else {length: _cache_bytes(cache, cache.dtype if dtype == ran_in else dtype, length) for length in lengths},
            captured=dtype == ran_in,
        )
        for dtype in order
    )


def _captured_dtype(trace: Trace) -> str:
    """The element type that most floating-point parameters have; "" for a model without any."""
    elements: dict[str, int] = {}
    for spec in _specs(trace, "parameters"):
        if spec.dtype.startswith(_FLOATS):
            elements[spec.dtype] = elements.get(spec.dtype, 0) + spec.elements
    return max(elements, key=lambda dtype: elements[dtype]) if elements else ""


def _specs(trace: Trace, kind: str) -> list[TensorSpec]:
    """The specs of all parameters or buffers, each distinct tensor once."""
    numbers = dict.fromkeys(own.tensor for module in trace.modules for own in getattr(module, kind))
    return [trace.tensors[number].spec for number in numbers]


def _sum(specs: Sequence[TensorSpec], dtype: str | None) -> int | None:
    """Bytes when floating-point tensors have this type and all others keep theirs; None when one is not known.

    Without a type all keep theirs: a model may hold several.
    """
    total = 0
    for spec in specs:
        bits = element_bits(dtype if dtype and spec.dtype.startswith(_FLOATS) else spec.dtype)
        if bits is None:
            return None
        total += (spec.elements * bits + 7) // 8
    return total


def _scaled(size_bytes: int, ran_in: str, dtype: str) -> int | None:
    old, new = element_bits(ran_in), element_bits(dtype)
    return None if old is None or new is None else size_bytes * new // old


def _cache_bytes(cache: CacheNeeds, dtype: str, tokens: int) -> int | None:
    bits = element_bits(dtype)
    return None if bits is None else cache.elements_at(tokens) * bits // 8
