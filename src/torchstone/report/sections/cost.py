"""What the model costs: FLOPs, bytes, memory over the run, predicted time; and columns for the module tree."""

from functools import partial

import msgspec

from torchstone.cost.formats import with_formats
from torchstone.cost.roofline import rated_as
from torchstone.record import codec
from torchstone.record.cost import CostTable, Fits
from torchstone.record.trace import Trace
from torchstone.report.cost_text import formats_text, largest_batch_text, needed_memory, split_rows
from torchstone.report.section import (
    Card,
    Chart,
    Column,
    Line,
    Mark,
    ModuleColumn,
    ReportFolder,
    RollUp,
    SectionView,
    Series,
    Shape,
    Shown,
    Table,
    Tone,
)
from torchstone.report.view.cost import advice, bound_shares, signature_rows, traffic_rows
from torchstone.units import many, show_bytes, show_count, show_flops, show_seconds

NAME = "cost"
FILE = "cost.json"
_TIMELINE = "cost.timeline"
_SIGNATURES = "cost.signatures"


def build(folder: ReportFolder) -> SectionView:
    """The view of the costs."""
    table = codec.load(folder.path / FILE, CostTable)
    trace = with_formats(folder.trace, table.conventions.formats)  # its signatures are those that were priced
    if not is_of(table, trace):
        words = f"{FILE} was computed from a different capture than the one in this folder; run `torchstone cost` again"
        return SectionView(name=NAME, title="Cost", document={}, notes=(words,))
    return SectionView(
        name=NAME,
        title="Cost",
        document=_document(table),
        cards=_cards(table),
        charts=_charts(table),
        tables=(
            *_advice_table(table),
            _signature_table(table, trace),
            _traffic_table(table),
            _peak_table(table),
            _timeline(table, trace),
        ),
        module_columns=_module_columns(table),
        notes=_notes(table),
        settings={"roof": _roof(table)},
        script="cost.js" if table.prediction is not None else "",
    )


def is_of(table: CostTable, trace: Trace) -> bool:
    """Whether the costs are those of the capture that the folder holds now."""
    same_modules = [cost.path for cost in table.modules] == [module.path for module in trace.modules]
    return same_modules and len(table.signatures) == len(trace.recorded_ops.signatures)


def _roof(table: CostTable) -> dict[str, object] | None:
    """What the drawing needs of the device: the rate of the element type that most matmuls have."""
    if table.prediction is None:
        return None
    hardware = table.prediction.hardware
    multiplied = [one for one in table.conventions.dtypes if one in hardware.peak_flops or "float" in one]
    rates = [hardware.peak_flops[rated_as(hardware, dtype)[0]] for dtype in multiplied]
    return {
        "title": hardware.title,
        "peak_flops": max(rates or hardware.peak_flops.values()),
        "memory_bytes_per_s": hardware.memory_bytes_per_s,
    }


def _document(table: CostTable) -> dict[str, object]:
    whole = msgspec.to_builtins(table)
    wanted = ("model", "conventions", "totals", "unpriced", "traffic", "peak", "ops", "classes")
    return {name: whole[name] for name in wanted}


def _cards(table: CostTable) -> tuple[Card, ...]:
    totals = table.totals
    unit = "FLOPs" if table.conventions.multiply_add > 1 else "MACs"
    missing = f", {many(totals.unpriced_calls, 'call')} without a price" if totals.unpriced_calls else ""
    cards = [
        Card(
            title=unit,
            value=show_count(totals.flops),
            detail=f"{totals.matmul_flops:,} in matmuls{missing}",
            tone=Tone.WARNING if missing else Tone.PLAIN,
        ),
        Card(
            title="Bytes moved",
            value=show_bytes(totals.bytes_read + totals.bytes_written),
            detail=f"{show_bytes(table.traffic.fused.total_bytes)} fused, "
            f"{show_bytes(table.traffic.compulsory.total_bytes)} compulsory",
        ),
        Card(
            title="Peak memory",
            value=show_bytes(totals.peak_bytes),
            detail=f"{show_bytes(table.peak.weights_bytes)} weights, {show_bytes(table.peak.kv_cache_bytes)} cache, "
            f"{show_bytes(table.peak.activations_bytes)} activations{_tiles(table)}{_eager(table)}",
        ),
    ]
    return tuple(cards + _predicted_cards(table) + _split_cards(table))


def _advice_table(table: CostTable) -> tuple[Table, ...]:
    if table.prediction is None:
        return ()
    rows = advice(table)
    columns = (
        Column(name="advice", title="What to try", values=[one.text for one in rows], shown=Shown.TEXT),
        Column(name="saves", title="Saves at most", values=[one.saves_s for one in rows], shown=Shown.SECONDS),
    )
    empty = "Nothing saves five percent of the predicted time."
    return (Table(name="cost.advice", title="Advice", columns=columns, empty=empty),)


def _tiles(table: CostTable) -> str:
    """Why the parts of the peak are larger than the tensors in them."""
    added, side = sum(table.peak.padding.values()), table.conventions.tile
    return f", {show_bytes(added)} of it added by whole tiles of {side} x {side}" if side and added > 0 else ""


def _eager(table: CostTable) -> str:
    """The other end of the peak."""
    held = table.peak.eager_bytes
    return "; at least" if held is None else f"; {show_bytes(held)} in eager, as Python held tensors"


def _predicted_cards(table: CostTable) -> list[Card]:
    found = table.prediction
    if found is None:
        return []
    bounds = ", ".join(f"{share:.0%} {bound.value}" for bound, share in bound_shares(table))
    tone = {Fits.YES: Tone.GOOD, Fits.NO: Tone.BAD}.get(found.verdict, Tone.WARNING)
    whole = " without --tp" if table.tensor_parallel is not None else ""  # the split has a card of its own
    return [
        Card(
            title=f"Predicted time{whole}",
            value=f"at least {show_seconds(found.total_s)}",
            detail=f"a bound, op by op, by published rates of {found.hardware.title}: {bounds}; not measured",
        ),
        Card(
            title=f"Fits in memory{whole}",
            value=found.verdict.value,
            detail=f"{needed_memory(found)} of {show_bytes(found.hardware.memory_bytes)}{largest_batch_text(found)}",
            tone=Tone.PLAIN if whole else tone,
        ),
    ]


def _split_cards(table: CostTable) -> list[Card]:
    """What each of several devices does, holds and sends."""
    split = table.tensor_parallel
    if split is None:
        return []
    unit = "FLOPs" if table.conventions.multiply_add > 1 else "MACs"
    rows = [f"{label}: {value}" for label, value in split_rows(split, unit) if label not in ("devices", "note")]
    return [
        Card(
            title=f"Each of {split.devices} devices",
            value=show_bytes(split.weight_bytes),
            detail="; ".join((f"of weights, {show_flops(split.flops, unit)}", *rows)),
            tone=Tone.PLAIN if split.fits is None else Tone.GOOD if split.fits else Tone.BAD,
        )
    ]


def _charts(table: CostTable) -> tuple[Chart, ...]:
    peak, found = table.peak, table.prediction
    marks = (
        (Mark(row=peak.operation_index, series="held", text=f"peak {show_bytes(peak.total_bytes)}"),)
        if peak.operation_index >= 0
        else ()
    )
    capacity = (Line(value=found.hardware.memory_bytes, text=found.hardware.title),) if found else ()
    timeline = Chart(
        name="cost-timeline",
        title="Live memory by op call",
        table=_TIMELINE,
        series=(Series(column="held", title="Live memory", filled=True),),
        shown=Shown.BYTES,
        x_title="op call",
        hover=("op", "module"),
        marks=marks,
        lines=capacity if found and found.hardware.memory_bytes < 4 * max(peak.total_bytes, 1) else (),
    )
    bars = partial(Chart, table=_SIGNATURES, shape=Shape.BARS, x_title="op signature", hover=("op", "result", "bound"))
    return (
        timeline,
        bars(name="cost-flops", title="FLOPs by op signature", series=(Series(column="flops", title="FLOPs"),),
             shown=Shown.COUNT),
        *(
            (
                bars(name="cost-time", title="Predicted time by op signature",
                     series=(Series(column="predicted", title="Predicted time"),), shown=Shown.SECONDS),
            )
            if found
            else ()
        ),
    )  # fmt: skip


def _signature_table(table: CostTable, trace: Trace) -> Table:
    rows = signature_rows(table, trace)
    timed = Shown.HIDDEN if table.prediction is None else Shown.SECONDS
    return Table(
        name=_SIGNATURES,
        title="Op signatures, most expensive first",
        empty="No op was called.",
        columns=(
            Column(name="op", title="Operator", values=[row.op for row in rows], shown=Shown.OP),
            Column(name="result", title="Result", values=[row.result for row in rows], shown=Shown.TEXT),
            Column(name="kind", title="Kind", values=[row.kind for row in rows], shown=Shown.TEXT),
            Column(name="calls", title="Calls", values=[row.calls for row in rows], shown=Shown.COUNT),
            Column(name="flops", title="FLOPs", values=[row.flops for row in rows], shown=Shown.COUNT),
            Column(name="moved", title="Bytes moved", values=[row.bytes_moved for row in rows], shown=Shown.BYTES),
            Column(name="intensity", title="FLOPs per byte", values=[row.intensity for row in rows],
                   shown=Shown.NUMBER),
            Column(name="predicted", title="Predicted time", values=[row.predicted_s for row in rows], shown=timed),
            Column(name="bound", title="Bound by", values=[row.bound for row in rows],
                   shown=Shown.HIDDEN if table.prediction is None else Shown.TEXT),
        ),
    )  # fmt: skip


def _traffic_table(table: CostTable) -> Table:
    rows = traffic_rows(table)
    return Table(
        name="cost.traffic",
        title="Bytes moved",
        columns=(
            Column(name="level", title="Level", values=[row.level for row in rows], shown=Shown.TEXT),
            Column(name="total", title="Total", values=[row.total_bytes for row in rows], shown=Shown.BYTES),
            Column(name="weights", title="Weights", values=[row.weights_bytes for row in rows], shown=Shown.BYTES),
            Column(name="cache", title="KV cache", values=[row.kv_cache_bytes for row in rows], shown=Shown.BYTES),
            Column(
                name="activations",
                title="Activations",
                values=[row.activations_bytes for row in rows],
                shown=Shown.BYTES,
            ),
        ),
    )


def _peak_table(table: CostTable) -> Table:
    rows = table.peak.alive
    return Table(
        name="cost.peak",
        title="Live at the peak",
        empty="No live tensors.",
        columns=(
            Column(name="name", title="Name", values=[row.name for row in rows], shown=Shown.TEXT),
            Column(name="module", title="Producer", values=[row.module for row in rows], shown=Shown.TEXT),
            Column(name="tensor", title="Tensor", values=[row.tensor for row in rows], shown=Shown.TEXT),
            Column(name="count", title="Count", values=[row.count for row in rows], shown=Shown.COUNT),
            Column(name="size", title="Size", values=[row.size_bytes for row in rows], shown=Shown.BYTES),
            Column(name="category", title="Category", values=[row.category.value for row in rows], shown=Shown.TEXT),
        ),
    )


def _timeline(table: CostTable, trace: Trace) -> Table:
    ran_in = trace.module_calls.modules
    ops = [trace.ops.signatures[number].op for number in trace.ops.signature_of]
    modules = [trace.modules[ran_in[call]].path if call >= 0 else "" for call in trace.ops.module_calls]
    return Table(
        name=_TIMELINE,
        columns=(
            Column(name="held", title="Live memory", values=table.timeline_bytes, shown=Shown.BYTES),
            Column(name="op", title="Operator", values=ops, shown=Shown.OP),
            Column(name="module", title="Module", values=modules, shown=Shown.TEXT),
        ),
    )


def _module_columns(table: CostTable) -> tuple[ModuleColumn, ...]:
    rows, found = table.modules, table.prediction
    unit = "FLOPs" if table.conventions.multiply_add > 1 else "MACs"
    column = partial(ModuleColumn, roll_up=RollUp.SUM)
    columns = [
        column(name="flops", title=unit, values=[row.flops for row in rows], shown=Shown.COUNT, bar=True),
        column(name="self_flops", title=f"Self {unit}", values=[row.self_flops for row in rows], shown=Shown.COUNT),
        column(
            name="moved",
            title="Bytes moved",
            values=[row.bytes_read + row.bytes_written for row in rows],
            shown=Shown.BYTES,
            bar=True,
        ),
    ]
    if found is not None:
        columns.append(
            column(
                name="predicted", title="Predicted time", values=list(found.modules_s), shown=Shown.SECONDS, bar=True
            )
        )
    return tuple(columns)


def _notes(table: CostTable) -> tuple[str, ...]:
    unpriced = [
        f"{op} has no price: its {many(calls, 'call is', 'calls are')} not included in any total"
        for op, calls in table.unpriced.items()
    ]
    predicted = [] if table.prediction is None else [
        f"Times are predicted with the roofline model of {table.prediction.hardware.title}, not measured",
        *table.prediction.notes,
    ]  # fmt: skip
    formats = [f"Number formats: {formats_text(table)}"] if table.conventions.formats.source else []
    split = () if table.tensor_parallel is None else table.tensor_parallel.notes
    return (*unpriced, *predicted, *formats, *table.notes, *split)
