"""Buffers: where each lies and how long it lives, and L1 core by core where a report states cores."""

from collections.abc import Sequence

from torchstone.memory.allocator import placements
from torchstone.memory.documents import placement_document
from torchstone.memory.usage import core_uses, late_frees
from torchstone.record.memory import NONE
from torchstone.record.memory_findings import CoreUse, PlacedBuffer, Placement
from torchstone.report.section import Card, Column, ReportFolder, SectionView, Shown, Table, Tone
from torchstone.report.sections.memory_peaks import ORIGINS
from torchstone.report.view.memory import MemoryView, memory_view
from torchstone.units import show_bytes

NAME = "buffers"
_MOST_BLOCKS = 20_000
_TOTAL = "L1_WITH_CIRCULAR_BUFFERS"


def build(folder: ReportFolder) -> SectionView:
    """The view of addresses and lifetimes."""
    view = memory_view(folder)
    found = placements(view.study, [name for name in view.used if name != _TOTAL])
    shown = [(one, _chosen_blocks(view, one)) for one in found]
    cores = _cores_at_peak(view)
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
    if cores:
        maps.append({"kind": "cores", "table": "buffers.cores", "title": _cores_title(view)})
    tables = [_table(view, one, blocks) for one, blocks in shown]
    return SectionView(
        name=NAME,
        title="Buffers",
        document={"placement": [placement_document(one) for one in found]},
        cards=tuple(_card(one) for one in found),
        tables=(*tables, *([_late_table(view)] if view.timeline.allocations else []), _cores_table(cores)),
        notes=tuple(note for one, blocks in shown for note in _notes(one, blocks)),
        settings={"maps": maps},
        script="blocks.js",
    )


def _card(one: Placement) -> Card:
    title = f"Addresses in {one.memory}"
    if one.policy and not one.checked:
        return Card(title=title, value="stated", detail=f"{len(one.blocks):,} buffers with addresses and lifetimes")
    if not one.verified_passes:
        return Card(title=title, value="unknown", detail=one.reason, tone=Tone.WARNING)
    detail = (
        f"{one.policy}; the largest free block is right at {one.checked:,} snapshots"
        f"{f', in {one.verified_passes} of {one.passes} passes' if one.verified_passes < one.passes else ''}"
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
        notes.append(f"{one.memory}: the {len(blocks):,} buffers nearest to the peak of {len(one.blocks):,} are drawn.")
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
            Column(name="last", title="Last use", values=[one.allocation.last_use for one in late], shown=Shown.COUNT),
            Column(
                name="source",
                title="Source line",
                values=["" if call is None or call.location == "unknown" else call.location for call in sources],
                shown=Shown.TEXT,
            ),
        ),
    )


# --- L1 core by core ---


def _peak_op(view: MemoryView) -> int:
    peak = view.peaks.get(_TOTAL) or view.peaks.get("L1")
    return NONE if peak is None else peak.op


def _cores_at_peak(view: MemoryView) -> tuple[CoreUse, ...]:
    op = _peak_op(view)
    return () if op == NONE else core_uses(view.study, op)


def _cores_title(view: MemoryView) -> str:
    op = _peak_op(view)
    fullest = max(one.tensor_bytes + one.program_bytes for one in _cores_at_peak(view))
    return f"L1 of each core before op {op}, the peak: {show_bytes(fullest)} on the fullest core"


def _cores_table(cores: Sequence[CoreUse]) -> Table:
    return Table(
        name="buffers.cores",
        columns=(
            Column(name="x", values=[one.x for one in cores]),
            Column(name="y", values=[one.y for one in cores]),
            Column(name="tensors", values=[one.tensor_bytes for one in cores]),
            Column(name="programs", values=[one.program_bytes for one in cores]),
        ),
    )
