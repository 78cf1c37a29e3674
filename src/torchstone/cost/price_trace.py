"""price(): what a trace costs; each distinct op signature is priced once."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from torchstone.cost import prices  # noqa: F401 - fills the registry
from torchstone.cost.caches import cache_memory, in_blocks
from torchstone.cost.fusion import PricedSignature, compulsory_traffic, fused_traffic
from torchstone.cost.liveness import LiveMemory, live_memory
from torchstone.cost.registry import Entry, NoPriceError, Price, find_price, reads_of, writes_of
from torchstone.cost.rollup import class_costs, depth_costs, module_costs, op_costs, own_costs
from torchstone.cost.shorten import Short, shorten, whole
from torchstone.cost.storages import Storages, storages_of
from torchstone.cost.tiles import in_tiles
from torchstone.record.base import Record
from torchstone.record.cost import (
    CacheMemory,
    Category,
    Causal,
    Conventions,
    CostTable,
    Kind,
    SignatureCost,
    Totals,
    Traffic,
    TrafficLevels,
)
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import NOT_APPLIED, Trace
from torchstone.record.value import Items, Opaque, Value
from torchstone.units import many, show_bytes

_USUAL = Conventions()
_PACKED = "torch.ScriptObject"
_WORKSPACE = "workspace"
_NOTHING = PricedSignature(kind=Kind.UNPRICED, reads=(), writes=())


def price(trace: Trace, conventions: Conventions = _USUAL) -> CostTable:
    """Price every op call of a trace; what has no price is named in `unpriced`, with its calls."""
    calls = trace.signature_calls()
    results = list(map(_priced, trace.recorded_ops.signatures))
    priced = [result if isinstance(result, PricedSignature) else _NOTHING for _, result in results]
    costs = [_cost(one, result, conventions, calls[number]) for number, (one, result) in enumerate(results)]
    memory = _memory(trace, shorten(trace), priced)
    live = _live(trace, memory.live, conventions)
    packed, unseen = _packed(trace, calls), memory.unknown_sizes + _workspaces(trace, calls)
    unsized = packed + unseen
    peak = msgspec.structs.replace(live.peak, unsized=unsized) if unsized else live.peak
    if trace.eager_memory is not None:  # scratch memory of kernels is in neither
        beyond = peak.total_bytes - memory.live.peak.total_bytes  # tiles and blocks
        eager = max(trace.eager_memory.peak_bytes + beyond, peak.total_bytes)
        as_run = conventions.tile is None and conventions.block_size is None
        reserved = trace.eager_memory.reserved_bytes if as_run else None
        peak = msgspec.structs.replace(peak, eager_bytes=eager, reserved_bytes=reserved)
    own = own_costs(trace, costs)
    cache = cache_memory(trace, conventions.block_size)
    parameters = _parameter_specs(trace)
    unpriced: Counter[str] = Counter()
    for signature, cost in zip(trace.recorded_ops.signatures, costs, strict=True):
        if cost.kind is Kind.UNPRICED:
            unpriced[signature.op] += cost.calls
    return CostTable(
        model=trace.provenance.model,
        conventions=_filled(conventions, trace, parameters),
        totals=_totals(costs, parameters, peak_bytes=peak.total_bytes),
        unpriced=dict(sorted(unpriced.items())),
        traffic=memory.traffic,
        peak=peak,
        modules=module_costs(trace, own),
        ops=op_costs(trace, costs),
        signatures=tuple(costs),
        classes=class_costs(trace, own),
        depths=depth_costs(trace, own),
        timeline_bytes=live.timeline_bytes,
        cache=cache,
        notes=(*_causal_note(conventions, results), *_notes(trace, unseen, packed), *_cache_note(cache)),
    )


def _packed(trace: Trace, calls: Mapping[int, int]) -> int:
    """How often an op is given an object of torch's C++ side, as quantized layers keep their weights in."""
    return sum(
        calls[number] * sum(map(_objects_in, (one.value for one in found.arguments)))
        for number, found in enumerate(trace.recorded_ops.signatures)
        if found.input_specs or found.output_specs  # without any it notes something, as a profiler's record does
    )


def _workspaces(trace: Trace, calls: Mapping[int, int]) -> int:
    """How often a backward op reads what its forward kept in memory of a size that only the kernel knows.

    Without data torch gives such a workspace no elements; a real one has at least the gates of each step.
    """
    return sum(
        calls[number]
        for number, found in enumerate(trace.recorded_ops.signatures)
        for one in found.arguments
        if one.name == _WORKSPACE and isinstance(one.value, TensorSpec) and not one.value.elements
    )


def _objects_in(value: Value) -> int:
    if isinstance(value, Items):
        return sum(map(_objects_in, value.items))
    return int(isinstance(value, Opaque) and value.class_name == _PACKED)


_Result = tuple[Price, PricedSignature | str]
_MOST_KEPT = 50_000
_known: dict[int, tuple[OpSignature, Entry | None, _Result]] = {}  # by id


def _priced(signature: OpSignature) -> _Result:
    """The price of a signature; captures of one process share the objects, so each is priced once."""
    entry = find_price(signature.op)  # which a user may have changed
    known = _known.get(id(signature))
    if known is not None and known[0] is signature and known[1] is entry:
        return known[2]
    if len(_known) >= _MOST_KEPT:
        _known.clear()
    result = price_signature(signature)
    _known[id(signature)] = (signature, entry, result)
    return result


def price_signature(signature: OpSignature) -> _Result:
    """The price of one call with its traffic filled in, or why there is none."""
    entry = find_price(signature.op)
    if entry is None:
        return Price(), f"{signature.op} has no price"
    specs = (*signature.input_specs, *signature.output_specs)
    sparse = next((spec.layout for spec in specs if not spec.is_dense), None)
    if sparse is not None:  # prices count every element of a shape
        return Price(), f"the number of values that a {sparse} tensor stores is not recorded"
    try:
        found = entry.function(signature)
        reads = reads_of(signature) if found.reads is None else found.reads
        writes = writes_of(signature) if found.writes is None else found.writes
    except NoPriceError as reason:
        return Price(), str(reason)
    return found, PricedSignature(kind=entry.kind, reads=reads, writes=writes)


def _cost(found: Price, result: PricedSignature | str, conventions: Conventions, calls: int) -> SignatureCost:
    if isinstance(result, str):
        return SignatureCost(kind=Kind.UNPRICED, calls=calls, reason=result)
    skipped = found.causal_flops // 2 if conventions.causal is Causal.HALF else 0
    matmul = found.matmul_flops - skipped
    rest = found.flops - found.matmul_flops
    matmul = matmul * conventions.multiply_add // 2
    return SignatureCost(
        kind=result.kind,
        flops=matmul + rest,
        matmul_flops=matmul,
        bytes_read=sum(result.reads),
        bytes_written=sum(result.writes),
        calls=calls,
    )


class _Memory(Record, frozen=True, kw_only=True):
    live: LiveMemory
    traffic: TrafficLevels
    unknown_sizes: int


def _memory(trace: Trace, short: Short, priced: Sequence[PricedSignature]) -> _Memory:
    """Live and moved bytes; computed for a few of the blocks that repeat, or for all where that does not do."""
    storages = storages_of(short)
    fused = fused_traffic(short, priced, storages)
    if fused is None:  # blocks that are left out may form other kernels
        return _memory(trace, whole(trace), priced)
    moved = _moved(short, priced, storages)
    return _Memory(
        live=live_memory(short, storages),
        traffic=TrafficLevels(
            unfused=Traffic(
                read_bytes=storages.by_category(moved.read), written_bytes=storages.by_category(moved.written)
            ),
            fused=fused,
            compulsory=compulsory_traffic(short, priced, storages, moved.read),
        ),
        unknown_sizes=storages.unknown,
    )


def _live(trace: Trace, captured: LiveMemory, conventions: Conventions) -> LiveMemory:
    """What is live with the cache in blocks, which grow in place, and matrices in tiles."""
    block, tile = conventions.block_size, conventions.tile
    if block is None and tile is None:
        return captured
    stored = shorten(trace) if block is None else whole(trace)  # blocks are found by layer
    storages = storages_of(stored)
    loose = in_blocks(trace, storages, block)
    live = live_memory(stored, in_blocks(trace, in_tiles(stored, storages, tile), block, tile))
    if tile is None:
        return live
    before, after = live_memory(stored, loose).peak if block else captured.peak, live.peak
    padding = {
        Category.WEIGHTS: after.weights_bytes - before.weights_bytes,
        Category.KV_CACHE: after.kv_cache_bytes - before.kv_cache_bytes,
        Category.ACTIVATIONS: after.activations_bytes - before.activations_bytes,
    }
    return msgspec.structs.replace(live, peak=msgspec.structs.replace(after, padding=padding))


class _Moved(Record, frozen=True, kw_only=True):
    """Bytes by storage, over all op calls."""

    read: dict[int, int]
    written: dict[int, int]


def _moved(short: Short, priced: Sequence[PricedSignature], storages: Storages) -> _Moved:
    trace = short.trace
    storage_of, writes = trace.tensors.storage_of, trace.ops.writes
    moving = [one.moves_something for one in priced]
    read: dict[int, int] = {}
    written: dict[int, int] = {}
    for row, (signature, times) in enumerate(zip(trace.ops.signature_of, short.times_of_rows(), strict=True)):
        if not moving[signature]:
            continue
        one = priced[signature]
        for storage, size in zip(storages.read[row], one.reads, strict=False):
            read[storage] = read.get(storage, 0) + size * times
        made = storages.made[row] or [storage_of[tensor] for tensor in writes.get(row, ())]
        for storage, size in zip(made, one.writes, strict=False):
            written[storage] = written.get(storage, 0) + size * times
    return _Moved(read=read, written=written)


def _totals(costs: Sequence[SignatureCost], parameters: Mapping[TensorSpec, int], *, peak_bytes: int) -> Totals:
    return Totals(
        flops=sum(cost.flops * cost.calls for cost in costs),
        matmul_flops=sum(cost.matmul_flops * cost.calls for cost in costs),
        bytes_read=sum(cost.bytes_read * cost.calls for cost in costs),
        bytes_written=sum(cost.bytes_written * cost.calls for cost in costs),
        peak_bytes=peak_bytes,
        parameter_bytes=sum((spec.size_bytes or 0) * count for spec, count in parameters.items()),
        op_calls=sum(cost.calls for cost in costs),
        unpriced_calls=sum(cost.calls for cost in costs if cost.kind is Kind.UNPRICED),
    )


def _filled(conventions: Conventions, trace: Trace, parameters: Collection[TensorSpec]) -> Conventions:
    dtypes = {
        f"{spec.dtype} in {spec.subclass.rpartition('.')[2]}" if spec.is_packed else spec.dtype for spec in parameters
    }
    return msgspec.structs.replace(
        conventions,
        phase=conventions.phase or trace.provenance.phase,
        dtypes=tuple(sorted(dtypes)),
        assumed=trace.assumed,
    )


def _parameter_specs(trace: Trace) -> dict[TensorSpec, int]:
    """How many parameters there are of each kind."""
    table = trace.recorded_tensors
    counts = Counter(
        table.spec_of[one.tensor] for one in table.external if one.kind == "parameter"
    )  # before all copies
    return {table.specs[number]: count for number, count in counts.items()}


def _causal_note(conventions: Conventions, results: Sequence[tuple[Price, PricedSignature | str]]) -> tuple[str, ...]:
    """Said where half was asked for and nothing could be halved."""
    if conventions.causal is Causal.FULL or any(found.causal_flops for found, _ in results):
        return ()
    return ("no attention kernel was called as causal, so counting causal attention by half changes nothing",)


def _cache_note(cache: CacheMemory | None) -> tuple[str, ...]:
    """Said where the model's code keeps more than a server does, and where it is not known what a step leaves."""
    notes = []
    if cache is not None and cache.head_copies > 1:
        notes.append(
            f"the cache has each key and value head {cache.head_copies} times, as the model's code expands heads "
            f"before it keeps them; a server that keeps each once takes {show_bytes(cache.single_heads_bytes)} "
            f"instead of {show_bytes(cache.size_bytes)}"
        )
    if cache is not None and cache.replaced:
        kept = many(cache.replaced, "tensor that a module keeps", "tensors that modules keep")
        notes.append(
            f"what a step puts in the place of {kept} as attributes is not known, and not in the bytes written"
        )
    return tuple(notes)


def _notes(trace: Trace, unknown_sizes: int, packed: int) -> tuple[str, ...]:
    notes = [note for note in trace.notes if NOT_APPLIED in note]
    if unknown_sizes:
        notes.append(f"elements of unknown size, which count as nothing in the peak: {many(unknown_sizes, 'tensor')}")
    if packed:
        times = many(packed, "call reads", "calls read")
        notes.append(f"{times} weights that torch packs into objects of unknown size, which count as nothing")
    if trace.failure is not None:
        notes.append(f"the forward pass ended early in {trace.failure.module or 'the root'}: costs are up to there")
    return tuple(notes)
