"""Buffers: where each lies and how long it lives, and L1 core by core where a report states cores."""

from collections.abc import Iterable, Sequence

from torchstone.memory.allocator import placements
from torchstone.memory.documents import placement_document
from torchstone.memory.usage import busy_ops, core_uses, late_frees, tensor_uses
from torchstone.record.memory import NONE, OpCall
from torchstone.record.memory_findings import PlacedBuffer, Placement
from torchstone.report.section import Card, Column, ReportFolder, SectionView, Shown, Table, Tone
from torchstone.report.sections.memory_peaks import ORIGINS
from torchstone.report.view.memory import MemoryView, memory_view
from torchstone.units import many

NAME = "buffers"
_MOST_BLOCKS = 20_000
_TOTAL = "L1_WITH_CIRCULAR_BUFFERS"


def build(folder: ReportFolder) -> SectionView:
    """The view of addresses and lifetimes."""
    view = memory_view(folder)
    found = placements(view.study, [name for name in view.used if name != _TOTAL])
    shown = [(one, _chosen_blocks(view, one)) for one in found]
    cores = _cores_table(view)
    maps: list[dict[str, object]] = [
        {"kind": "addresses", "table": f"buffers.{one.memory}", "title": f"{one.memory}: buffers by address over ops"}
        for one, blocks in shown
        if blocks
    ]
    maps += [
        {"kind": "lifetimes", "table": f"buffers.{one.memory}", "title": f"{one.memory}: lifetime of each buffer"}
        for one, blocks in shown
        if blocks
    ]
    if cores.rows:
        names = {op: f"op {op}, {view.texts[op]}" for op in _core_ops(view)}
        maps.append(
            {
                "kind": "cores",
                "table": cores.name,
                "title": "L1 of each core before an op",
                "chosen": _peak_op(view),
                "names": [[op, name] for op, name in names.items()],
            }
        )
    tables = [_table(view, one, blocks) for one, blocks in shown]
    stated = [_tensors_table(view), _calls_table(view), _late_table(view)] if view.timeline.allocations else []
    return SectionView(
        name=NAME,
        title="Buffers",
        document={"placement": [placement_document(one) for one in found]},
        cards=tuple(_card(one) for one in found),
        tables=(*stated, *tables, cores),
        notes=tuple(note for one, blocks in shown for note in _notes(one, blocks)),
        settings={"maps": maps},
        script="blocks.js",
    )


def _card(one: Placement) -> Card:
    title = f"Addresses in {one.memory}"
    if one.policy and not one.checked:
        return Card(
            title=title, value="stated", detail=f"{many(len(one.blocks), 'buffer')} with addresses and lifetimes"
        )
    if not one.verified_passes:
        return Card(title=title, value="unknown", detail=one.reason, tone=Tone.WARNING)
    detail = f"{one.policy}; the largest free block is right at {one.checked:,} snapshots" + (
        f", in {one.verified_passes} of {many(one.passes, 'pass', 'passes')}"
        if one.verified_passes < one.passes
        else ""
    )
    tone = Tone.GOOD if one.verified_passes == one.passes else Tone.WARNING
    return Card(title=title, value="replayed", detail=detail, tone=tone)


def _chosen_blocks(view: MemoryView, one: Placement) -> Sequence[PlacedBuffer]:
    """All blocks, or those around the peak where there are too many to draw."""
    if len(one.blocks) <= _MOST_BLOCKS:
        return one.blocks
    op = max(view.peaks[one.memory].op, 0)
    near = sorted(one.blocks, key=lambda block: max(block.from_op - op, op - block.end_op, 0))
    return sorted(near[:_MOST_BLOCKS], key=lambda block: block.from_op)


def _notes(one: Placement, blocks: Sequence[PlacedBuffer]) -> list[str]:
    notes = [f"{one.memory}: {one.reason}."] if one.reason else []
    if one.is_ambiguous:
        notes.append(
            f"{one.memory}: arguments are placed in the order of the graph's arguments, above memory without an "
            "owner. Another order agrees with all readings, too, so these may lie at other addresses."
        )
    if len(blocks) < len(one.blocks):
        notes.append(
            f"{one.memory}: the {many(len(blocks), 'buffer')} nearest to the peak of {len(one.blocks):,} are drawn."
        )
    return notes


def _table(view: MemoryView, one: Placement, blocks: Sequence[PlacedBuffer]) -> Table:
    end = len(view.timeline.ops)
    return Table(
        name=f"buffers.{one.memory}",
        title=f"Buffers in {one.memory}" if blocks else "",
        columns=(
            Column(name="owner", title="Owner", values=[block.owner for block in blocks], shown=Shown.TEXT),
            Column(
                name="kind",
                title="Kind",
                values=["unknown" if block.origin is None else ORIGINS[block.origin] for block in blocks],
                shown=Shown.TEXT,
            ),
            Column(name="size", title="Per bank", values=[block.bank_bytes for block in blocks], shown=Shown.BYTES),
            Column(name="address", title="Address", values=[block.address for block in blocks], shown=Shown.COUNT),
            Column(name="first", title="From op", values=[block.from_op for block in blocks], shown=Shown.COUNT),
            Column(
                name="end", title="Until op", values=[min(block.end_op, end) for block in blocks], shown=Shown.COUNT
            ),
        ),
        empty="No buffer has an address.",
    )


# --- Tensors that stay after their last use ---


def _late_table(view: MemoryView) -> Table:
    late = late_frees(view.study)
    sources = [view.study.call(one.allocation.last_use) for one in late]
    return Table(
        name="buffers.late",
        title="Live after their last use" if late else "",
        columns=(
            Column(name="owner", title="Tensor", values=[one.allocation.owner for one in late], shown=Shown.TEXT),
            Column(name="memory", title="Memory", values=[one.allocation.memory for one in late], shown=Shown.TEXT),
            Column(
                name="size", title="Per bank", values=[one.allocation.bank_bytes for one in late], shown=Shown.BYTES
            ),
            Column(name="idle", title="Calls since", values=[one.idle_calls for one in late], shown=Shown.COUNT),
            Column(
                name="freed",
                title="Freed",
                values=["late" if one.is_freed else "never" for one in late],
                shown=Shown.TEXT,
            ),
            Column(name="last", title="Last use", values=[one.allocation.last_use for one in late], shown=Shown.ROW),
            Column(
                name="source",
                title="Source line",
                values=[_source_line(call) for call in sources],
                shown=Shown.TEXT,
            ),
        ),
    )


# --- L1 core by core ---


def _peak_op(view: MemoryView) -> int:
    peak = view.peaks.get(_TOTAL) or view.peaks.get("L1")
    return NONE if peak is None else peak.op


def _core_ops(view: MemoryView) -> list[int]:
    """The ops whose cores can be looked at: those before which L1 changes, and the peak."""
    peak = _peak_op(view)
    return sorted({*busy_ops(view.study), *([] if peak == NONE else [peak])})


def _cores_table(view: MemoryView) -> Table:
    found = [(op, one) for op in _core_ops(view) for one in core_uses(view.study, op)]
    return Table(
        name="buffers.cores",
        columns=(
            Column(name="op", values=[op for op, _ in found]),
            Column(name="x", values=[one.x for _, one in found]),
            Column(name="y", values=[one.y for _, one in found]),
            Column(name="tensors", values=[one.tensor_bytes for _, one in found]),
            Column(name="programs", values=[one.program_bytes for _, one in found]),
        ),
    )


# --- Calls and tensors of a report ---


def _tensors_table(view: MemoryView) -> Table:
    found = tensor_uses(view.study)
    types = view.timeline.types
    memories = [types[one.type].buffer for one in found]
    producers = [view.study.call(one.producer) if one.producer != NONE else None for one in found]
    return Table(
        name="buffers.tensors",
        title="Tensors, producers and consumers" if found else "",
        columns=(
            Column(name="value", title="Tensor", values=[one.value for one in found], shown=Shown.TEXT),
            Column(name="type", title="Type", values=[types[one.type].text for one in found], shown=Shown.TEXT),
            Column(
                name="memory",
                title="Memory",
                values=["" if buffer is None else buffer.memory for buffer in memories],
                shown=Shown.TEXT,
            ),
            Column(
                name="maker",
                title="Producer",
                values=["" if call is None else call.name for call in producers],
                shown=Shown.TEXT,
            ),
            Column(name="producer", title="Made by", values=_links(one.producer for one in found), shown=Shown.ROW),
            Column(
                name="first",
                title="First reader",
                values=_links(one.consumers[0] if one.consumers else NONE for one in found),
                shown=Shown.ROW,
            ),
            Column(
                name="last",
                title="Last reader",
                values=_links(one.consumers[-1] if one.consumers else NONE for one in found),
                shown=Shown.ROW,
            ),
            Column(
                name="consumers",
                title="Readers",
                values=[", ".join(_reader(view, op) for op in one.consumers) for one in found],
                shown=Shown.TEXT,
            ),
        ),
    )


def _links(ops: Iterable[int]) -> list[int | None]:
    return [None if op == NONE else op for op in ops]


def _source_line(call: OpCall | None) -> str:
    return "" if call is None or call.location == "unknown" else call.location.strip('"')


def _reader(view: MemoryView, op: int) -> str:
    call = view.study.call(op)
    return f"op {op}" if call is None else f"op {op} {call.name}"


def _calls_table(view: MemoryView) -> Table:
    known = ((op, view.study.call(op)) for op in range(len(view.timeline.ops)))
    calls = [(op, call) for op, call in known if call is not None and (call.details or call.operands or call.results)]
    is_shown = any(call.details for _, call in calls)
    return Table(
        name="buffers.calls",
        title="Calls and their arguments" if is_shown else "",
        columns=(
            Column(name="op", title="Op", values=[op for op, _ in calls], shown=Shown.ROW),
            Column(name="call", title="Call", values=[call.name for _, call in calls], shown=Shown.TEXT),
            Column(name="arguments", title="Arguments", values=[call.details for _, call in calls], shown=Shown.TEXT),
            Column(
                name="results", title="Results", values=[", ".join(call.results) for _, call in calls], shown=Shown.TEXT
            ),
            Column(
                name="source",
                title="Source line",
                values=[_source_line(call) for _, call in calls],
                shown=Shown.TEXT,
            ),
        ),
    )
