"""What the page shows of a cost table: rows for ops, signatures, memory and time, chosen once for all formats."""

from torchstone.record.base import Record
from torchstone.record.cost import Bound, Category, CostTable, Kind
from torchstone.record.trace import Trace
from torchstone.record.value import show_value

_MOST_SIGNATURES = 500


class SignatureRow(Record, frozen=True, kw_only=True):
    """All calls of one op signature together."""

    op: str
    result: str
    kind: str
    calls: int
    flops: int | None  # None: no price
    bytes_moved: int | None
    intensity: float | None  # FLOPs per byte
    predicted_s: float | None
    bound: str  # "" without a prediction


class TrafficRow(Record, frozen=True, kw_only=True):
    """One level of traffic."""

    level: str
    total_bytes: int
    weights_bytes: int
    kv_cache_bytes: int
    activations_bytes: int


def signature_rows(table: CostTable, trace: Trace) -> tuple[SignatureRow, ...]:
    """The signatures that cost most: by predicted time where there is one, by FLOPs and bytes otherwise."""
    rows = [
        _signature_row(table, trace, number)
        for number, cost in enumerate(table.signatures)
        if cost.kind is not Kind.VIEW and cost.calls
    ]
    rows.sort(key=lambda row: (-(row.predicted_s or 0.0), -(row.flops or 0), -(row.bytes_moved or 0), row.op))
    return tuple(rows[:_MOST_SIGNATURES])


def _signature_row(table: CostTable, trace: Trace, number: int) -> SignatureRow:
    cost, signature = table.signatures[number], trace.ops.signatures[number]
    found = table.prediction.signatures[number] if table.prediction else None
    known = cost.kind is not Kind.UNPRICED
    moved = cost.bytes_read + cost.bytes_written
    return SignatureRow(
        op=signature.op,
        result=show_value(signature.output),
        kind=cost.kind.value,
        calls=cost.calls,
        flops=cost.flops * cost.calls if known else None,
        bytes_moved=moved * cost.calls if known else None,
        intensity=cost.flops / moved if known and moved else None,
        predicted_s=found.seconds * cost.calls if found else None,
        bound=found.bound.value if found else "",
    )


def traffic_rows(table: CostTable) -> tuple[TrafficRow, ...]:
    """The three levels of traffic."""
    levels = (
        ("unfused", table.traffic.unfused),
        ("fused", table.traffic.fused),
        ("compulsory", table.traffic.compulsory),
    )
    return tuple(
        TrafficRow(
            level=name,
            total_bytes=level.total_bytes,
            weights_bytes=level.moved_bytes(Category.WEIGHTS),
            kv_cache_bytes=level.moved_bytes(Category.KV_CACHE),
            activations_bytes=level.moved_bytes(Category.ACTIVATIONS),
        )
        for name, level in levels
    )


def bound_shares(table: CostTable) -> tuple[tuple[Bound, float], ...]:
    """Which part of the predicted time waits for what."""
    found = table.prediction
    if found is None or not found.total_s:
        return ()
    return tuple((bound, seconds / found.total_s) for bound, seconds in found.by_bound_s.items() if seconds)
