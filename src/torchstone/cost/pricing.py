"""price(): what a trace costs; each distinct op signature is priced once."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from torchstone.cost import prices  # noqa: F401 - fills the registry
from torchstone.cost.compulsory import compulsory_traffic
from torchstone.cost.fusion import PricedSignature, fused_traffic
from torchstone.cost.liveness import hold
from torchstone.cost.registry import NoPriceError, Price, find_price
from torchstone.cost.repeats import find_runs, over_all_blocks
from torchstone.cost.rollup import class_costs, depth_costs, module_costs, op_costs
from torchstone.cost.storages import Storages, find_storages
from torchstone.cost.traffic import reads_of, writes_of
from torchstone.record.cost import (
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
from torchstone.record.trace import Trace

_USUAL = Conventions()
_NOTHING = PricedSignature(kind=Kind.UNPRICED, reads=(), writes=())


def price(trace: Trace, conventions: Conventions = _USUAL) -> CostTable:
    """Price every op call of a trace; what has no price is named in `unpriced`, with its calls."""
    calls = Counter(trace.ops.signature_of)
    results = [price_signature(signature) for signature in trace.ops.signatures]
    priced = [result if isinstance(result, PricedSignature) else _NOTHING for _, result in results]
    costs = [_cost(one, result, conventions, calls[number]) for number, (one, result) in enumerate(results)]
    storages = find_storages(trace)
    held = hold(trace, storages)
    modules = module_costs(trace, costs)
    runs = find_runs(trace, storages) if trace.ops.forward_calls == len(trace.ops) else []
    unpriced: Counter[str] = Counter()
    for signature, cost in zip(trace.ops.signatures, costs, strict=True):
        if cost.kind is Kind.UNPRICED:
            unpriced[signature.op] += cost.calls
    return CostTable(
        model=trace.provenance.model,
        conventions=_filled(conventions, trace),
        totals=_totals(trace, costs, peak_bytes=held.peak.total_bytes),
        unpriced=dict(sorted(unpriced.items())),
        traffic=TrafficLevels(
            unfused=over_all_blocks(trace, runs, lambda short: _unfused(short, priced, storages)),
            fused=over_all_blocks(trace, runs, lambda short: fused_traffic(short, priced, storages)),
            compulsory=compulsory_traffic(trace, priced, storages),
        ),
        peak=held.peak,
        modules=modules,
        ops=op_costs(trace, costs),
        signatures=tuple(costs),
        classes=class_costs(modules),
        depths=depth_costs(modules),
        timeline_bytes=held.timeline_bytes,
        notes=(*_causal_note(conventions, results), *_notes(trace, storages)),
    )


def price_signature(signature: OpSignature) -> tuple[Price, PricedSignature | str]:
    """The price of one call with its traffic filled in, or why there is none."""
    entry = find_price(signature.op)
    if entry is None:
        return Price(), f"{signature.op} has no price"
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


def _unfused(trace: Trace, priced: Sequence[PricedSignature], storages: Storages) -> Traffic:
    storage_of, ops = trace.tensors.storage_of, trace.ops
    read, written = [0] * len(storages.sizes), [0] * len(storages.sizes)
    for call, signature in enumerate(ops.signature_of):
        one = priced[signature]
        if one.moves_nothing:
            continue
        for tensor, size in zip(ops.inputs[call], one.reads, strict=False):
            read[storage_of[tensor]] += size
        for tensor, size in zip(ops.outputs[call] or ops.writes.get(call, ()), one.writes, strict=False):
            written[storage_of[tensor]] += size
    return Traffic(read_bytes=storages.by_category(read), written_bytes=storages.by_category(written))


def _totals(trace: Trace, costs: Sequence[SignatureCost], *, peak_bytes: int) -> Totals:
    return Totals(
        flops=sum(cost.flops * cost.calls for cost in costs),
        matmul_flops=sum(cost.matmul_flops * cost.calls for cost in costs),
        bytes_read=sum(cost.bytes_read * cost.calls for cost in costs),
        bytes_written=sum(cost.bytes_written * cost.calls for cost in costs),
        peak_bytes=peak_bytes,
        parameter_bytes=sum(
            trace.tensors[external.tensor].spec.size_bytes or 0
            for external in trace.tensors.external
            if external.kind == "parameter"
        ),
        op_calls=len(trace.ops),
        unpriced_calls=sum(cost.calls for cost in costs if cost.kind is Kind.UNPRICED),
    )


def _filled(conventions: Conventions, trace: Trace) -> Conventions:
    parameters = {external.tensor for external in trace.tensors.external if external.kind == "parameter"}
    dtypes = {trace.tensors[tensor].spec.dtype for tensor in parameters}
    return msgspec.structs.replace(
        conventions, phase=conventions.phase or trace.provenance.phase, dtypes=tuple(sorted(dtypes))
    )


def _causal_note(conventions: Conventions, results: Sequence[tuple[Price, PricedSignature | str]]) -> tuple[str, ...]:
    """Said where half was asked for and nothing could be halved."""
    if conventions.causal is Causal.FULL or any(found.causal_flops for found, _ in results):
        return ()
    return ("no attention kernel was called as causal, so counting causal attention by half changes nothing",)


def _notes(trace: Trace, storages: Storages) -> tuple[str, ...]:
    notes = []
    if storages.unknown:
        notes.append(f"{storages.unknown} tensors have elements of unknown size and count as nothing in the peak")
    if trace.failure is not None:
        notes.append(f"the forward pass ended early in {trace.failure.module or 'the root'}: costs are up to there")
    return tuple(notes)
