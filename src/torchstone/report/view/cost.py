"""What the page shows of a cost table: rows for ops, signatures, memory and time, chosen once for all formats."""

from torchstone.record.base import Record
from torchstone.record.cost import Bound, Category, CostTable, Fits, Kind, Prediction
from torchstone.record.trace import Trace
from torchstone.record.value import show_value
from torchstone.units import many, show_bytes, show_seconds

_MOST_SIGNATURES = 500
_WORTH_TIME = 0.05  # of the predicted time: less is not worth an advice
_WORTH_MEMORY = 0.2  # of the peak
_BITS = {"float32": 32, "float16": 16, "bfloat16": 16}


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
    cost, signature = table.signatures[number], trace.recorded_ops.signatures[number]
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


# --- What to do about the predicted time, each with the most that it can save ---


class Advice(Record, frozen=True, kw_only=True):
    """One thing to try; `saves_s` is a bound by the roofline, not a promise. None: it is about memory."""

    text: str
    saves_s: float | None


def advice(table: CostTable) -> tuple[Advice, ...]:
    """What is worth trying on the device, the largest saving first; memory that is missing stands above all."""
    found = table.prediction
    if found is None or not found.total_s:
        return ()
    memory = found.hardware.memory_bytes // found.hardware.devices  # --tp splits over the chips of a board
    first = []
    split = table.tensor_parallel
    if split is not None and split.fits is False:
        first.append(f"it does not fit on {split.devices} devices: more of them, or a narrower format of the weights "
                     "(--weights)")  # fmt: skip
    if split is None and found.verdict is Fits.NO:
        devices = -(-found.peak_bytes // memory)
        first.append(f"it does not fit: {many(devices, 'device')} or more have the memory (--tp {devices}), "
                     "or a narrower format of the weights (--weights)")  # fmt: skip
    if sum(table.peak.padding.values()) > _WORTH_MEMORY * max(found.peak_bytes, 1):
        first.append("whole tiles make the peak larger: sizes that are multiples of the tile take less")
    savings = [_of_fusing(table, found), _of_launches(table, found), _of_weights(table, found)]
    worth = [one for one in savings if one.saves_s is not None and one.saves_s >= _WORTH_TIME * found.total_s]
    rest = sorted(worth, key=lambda one: -(one.saves_s or 0.0))
    return (*(Advice(text=text, saves_s=None) for text in first), *rest)


def _of_fusing(table: CostTable, found: Prediction) -> Advice:
    saved = table.traffic.unfused.total_bytes - table.traffic.fused.total_bytes
    text = f"fuse pointwise chains and attention: {show_bytes(saved)} less are moved, in fewer ops"
    return Advice(text=text, saves_s=found.total_s - found.fused_s)


def _of_launches(table: CostTable, found: Prediction) -> Advice:
    """Ops that end before the next one could be launched: what is beyond their bytes is the launch alone."""
    calls, saved_s = 0, 0.0
    for cost, one in zip(table.signatures, found.signatures, strict=True):
        if one is not None and one.bound is Bound.LAUNCH and one.seconds:
            calls += cost.calls
            moved_s = (cost.bytes_read + cost.bytes_written) / found.hardware.memory_bytes_per_s
            saved_s += cost.calls * max(one.seconds - moved_s, 0.0)
    text = (
        f"{many(calls, 'op call is', 'op calls are')} shorter than a launch "
        f"({show_seconds(found.hardware.launch_s)}): record them once and "
        "replay them (a trace, a CUDA graph)"
    )
    return Advice(text=text, saves_s=saved_s)


def _of_weights(table: CostTable, found: Prediction) -> Advice:
    """Weights in 8 bits instead of 16 or 32, as far as ops wait for memory at all."""
    chosen = table.conventions.formats.weights  # embeddings, norms and biases keep the dtype of the capture
    dtypes = (chosen,) if chosen else table.conventions.dtypes
    packed = any(" in " in one for one in dtypes)  # in a class of its own: then plain ones are biases and norms
    bits = 0 if packed else max((_BITS.get(one, 0) for one in dtypes), default=0)
    moved = table.traffic.unfused.moved_bytes(Category.WEIGHTS) if bits else 0
    saved_s = moved * (1 - 8 / bits) / found.hardware.memory_bytes_per_s if bits else 0.0
    total = show_bytes(table.traffic.unfused.total_bytes)
    text = (
        f"weights are {show_bytes(moved)} of the {total} moved: store them in 8 bits (--weights bfloat8_b, fp8, int8)"
    )
    return Advice(text=text, saves_s=min(saved_s, found.by_bound_s.get(Bound.MEMORY, 0.0)))
