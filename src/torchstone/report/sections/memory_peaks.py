"""Peaks: the live tensors with their owners, and the ops with the largest growth."""

from torchstone.memory.documents import oom_document
from torchstone.memory.ledger import live_before
from torchstone.memory.out_of_memory import explain_last_failure
from torchstone.memory.usage import module_shares, top_consumers
from torchstone.record.memory import NONE
from torchstone.record.memory_findings import LiveSet, Origin, OutOfMemory, Peak
from torchstone.report.section import Card, Column, ReportFolder, SectionView, Shown, Table
from torchstone.report.view.memory import MemoryView, memory_view
from torchstone.units import show_bytes

NAME = "peaks"
_MOST_CONSUMERS = 100
ORIGINS = {
    Origin.PARAMETER: "weight",
    Origin.CONSTANT: "constant",
    Origin.INPUT: "input",
    Origin.KV_CACHE: "KV cache",
    Origin.CONST_EVAL: "prepared weight",
    Origin.OUTPUT: "kept output",
    Origin.CIRCULAR_BUFFERS: "circular buffers",
    Origin.ACTIVATION: "activation",
}


def build(folder: ReportFolder) -> SectionView:
    """The view of the peaks."""
    view = memory_view(folder)
    failure = explain_last_failure(view.study)
    tables = [_advice_table(failure)] if failure else []
    tables += [_alive_table(view, live, "before the failing op", "failure") for live in _live_at_failure(view, failure)]
    tables += [_alive_table(view, live, f"at the {name} peak", name) for name, live in view.live_at_peaks.items()]
    tables += [_growth_table(view, memory) for memory in view.used]
    if view.has_modules:
        tables.append(_modules_table(view))
    document = {
        "alive": {name: _live_document(live) for name, live in view.live_at_peaks.items()},
        "oom": None if failure is None else oom_document(view.study, failure),
    }
    return SectionView(
        name=NAME,
        title="Peaks",
        document=document,
        cards=tuple(_card(view, view.peaks[name]) for name in view.used),
        tables=tuple(tables),
        notes=_unexplained(view),
    )


def _card(view: MemoryView, peak: Peak) -> Card:
    live = view.live_at_peaks.get(peak.memory)
    title = f"Peak {peak.memory} per bank"
    value = f"{peak.state.allocated / view.timeline.ticks_per_mib:.3f} MiB"
    if live is None or peak.op == NONE:
        return Card(title=title, value=value, detail=f"{view.timeline.marks[peak.mark].moment}")
    after = f", after {view.texts[peak.op - 1]}" if peak.op else ""
    lost = live.padded_bytes - live.logical_bytes
    detail = f"before op {peak.op}{after}. {show_bytes(lost)} of {show_bytes(live.padded_bytes)} is padding"
    return Card(title=title, value=value, detail=detail)


def _live_at_failure(view: MemoryView, failure: OutOfMemory | None) -> list[LiveSet]:
    if failure is None or failure.op == NONE:
        return []
    return [live for live in live_before(view.study, failure.op) if live.memory == failure.failure.memory]


def _alive_table(view: MemoryView, live: LiveSet, when: str, name: str) -> Table:
    buffers = live.buffers
    types = view.timeline.types
    return Table(
        name=f"peaks.alive.{name}",
        title=f"Live {when}" if live.memory in when else f"Live in {live.memory} {when}",
        columns=(
            Column(name="kind", title="Kind", values=[ORIGINS[one.origin] for one in buffers], shown=Shown.TEXT),
            Column(
                name="owner",
                title="Owner",
                values=[one.owner.removeprefix("const-eval of ") for one in buffers],
                shown=Shown.TEXT,
            ),
            Column(name="bank", title="Per bank", values=[one.bank_bytes for one in buffers], shown=Shown.BYTES),
            Column(name="device", title="On device", values=[one.padded_bytes for one in buffers], shown=Shown.BYTES),
            Column(
                name="padding",
                title="Padding",
                values=[None if one.logical_bytes is None else one.padded_bytes - one.logical_bytes for one in buffers],
                shown=Shown.BYTES,
            ),
            Column(name="tensor", title="Tensor", values=[types[one.type].text for one in buffers], shown=Shown.TEXT),
            Column(
                name="op",
                title="Producer",
                values=["" if one.op == NONE else str(one.op) for one in buffers],
                shown=Shown.TEXT,
            ),
        ),
        empty="The log names no live tensor.",
    )


def _growth_table(view: MemoryView, memory: str) -> Table:
    found = top_consumers(view.study, memory, limit=_MOST_CONSUMERS)
    growth = [view.bytes_of(one.effect_ticks) for one in found]
    return Table(
        name=f"peaks.growth.{memory}",
        title=f"Ops with the largest {memory} growth",
        columns=(
            Column(name="op", title="Index", values=[one.op for one in found], shown=Shown.COUNT),
            Column(name="what", title="Op", values=[view.texts[one.op] for one in found], shown=Shown.TEXT),
            Column(name="growth", title="Growth per bank", values=growth, shown=view.shown),
            Column(
                name="expected",
                title="Expected growth",
                values=[one.expected_bytes for one in found],
                shown=Shown.BYTES,
            ),
            Column(name="runs", title="Runs", values=[one.runs for one in found], shown=Shown.COUNT),
        ),
        empty="No op increased it.",
    )


def _modules_table(view: MemoryView) -> Table:
    main = next(iter(view.live_at_peaks.values()), None)
    shares = module_shares(view.study, main)
    live_title = f"Live at the {main.memory} peak" if main else "Live at the peak"
    return Table(
        name="peaks.modules",
        title="By module",
        columns=(
            Column(name="path", title="Module", values=[share.path for share in shares], shown=Shown.TEXT),
            Column(name="class", title="Class", values=[share.class_name for share in shares], shown=Shown.TEXT),
            Column(name="held", title=live_title, values=[share.peak_bytes for share in shares], shown=Shown.BYTES),
            Column(
                name="made",
                title="Allocated per pass",
                values=[share.made_bytes for share in shares],
                shown=Shown.BYTES,
            ),
            Column(name="ops", title="Ops", values=[share.ops for share in shares], shown=Shown.COUNT),
        ),
    )


def _advice_table(failure: OutOfMemory) -> Table:
    return Table(
        name="peaks.advice",
        title="Out of memory: suggestions",
        columns=(Column(name="advice", title="Advice", values=list(failure.advice), shown=Shown.TEXT),),
    )


def _unexplained(view: MemoryView) -> tuple[str, ...]:
    least = view.bytes_of(2)
    return tuple(
        f"{show_bytes(live.unexplained_bytes or 0)} per bank of {name} at its peak belong to nothing that the log "
        "names, such as memory allocated before the log begins."
        for name, live in view.live_at_peaks.items()
        if (live.unexplained_bytes or 0) > least
    ) + tuple(
        f"The tensors live at the {name} peak are not all listed: {live.doubt}."
        for name, live in view.live_at_peaks.items()
        if live.doubt
    )


def _live_document(live: LiveSet) -> dict[str, object]:
    return {
        "operation_index": live.op,
        "measured_bytes_per_bank": live.measured_bytes,
        "explained_bytes_per_bank": live.explained_bytes,
        "unexplained_bytes_per_bank": live.unexplained_bytes,
        "doubt": live.doubt,
        "buffers": [
            {
                "kind": one.origin.value,
                "owner": one.owner,
                "bank_bytes": one.bank_bytes,
                "padded_bytes": one.padded_bytes,
                "logical_bytes": one.logical_bytes,
                "operation_index": None if one.op == NONE else one.op,
            }
            for one in live.buffers
        ],
    }
