"""What a model needs in memory: weights, buffers, activations and cache, in each element type."""

from collections.abc import Sequence

from torchstone.record.base import Record
from torchstone.record.cost import CostTable
from torchstone.record.tensor import TensorSpec, element_bits
from torchstone.record.trace import Trace
from torchstone.report.reference.kv_cache import CacheNeeds, cache_needs

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
    numbers = dict.fromkeys(held.tensor for module in trace.modules for held in getattr(module, kind))
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
