"""Memory over time: every op of a log, each memory in a tab of its own."""

from torchstone.memory.documents import summary_document
from torchstone.memory.growth import pass_steps
from torchstone.memory.out_of_memory import diagnose, explain_last_failure
from torchstone.record.memory import NONE, Role
from torchstone.record.memory_findings import OutOfMemory, Peak
from torchstone.report.memory_text import L1_CAVEAT, failure_text, parts_text, passes_text
from torchstone.report.section import (
    Band,
    Banner,
    Card,
    Chart,
    Column,
    Line,
    Mark,
    ReportFolder,
    SectionView,
    Series,
    Shown,
    Table,
    Tone,
)
from torchstone.report.text import plain
from torchstone.report.view.memory import MemoryView, memory_view, run_text
from torchstone.units import many, show_bytes

NAME = "memory"
OPS_TABLE = "memory.ops"
_IDLE_TABLE = "memory.idle"
HOVER = ("what", "alive", "module", "where")
_MOST_BANDS = 2000
_MOST_STEPS = 200  # passes whose start is compared with that of the one before
_MARKED_OPS = 200_000  # up to this number of ops, const-evals are drawn as a line of their own; beyond it, as bands
_NEARLY_FULL = 0.9


def build(folder: ReportFolder) -> SectionView:
    """The view of memory over time."""
    view = memory_view(folder)
    failure = explain_last_failure(view.study)
    return SectionView(
        name=NAME,
        title="Memory",
        document=summary_document(view.study),
        banner=_banner(view, failure),
        cards=_cards(view, failure),
        charts=tuple(chart for memory in view.peaks for chart in _charts(view, memory)),
        tables=(
            _steps_table(view),
            _ops_table(view),
            Table(name=_IDLE_TABLE, columns=(Column(name="allocated", values=[0]),)),
        ),
        notes=(*diagnose(view.timeline), *_caveats(view)),
    )


def _banner(view: MemoryView, failure: OutOfMemory | None) -> Banner:
    """The verdict: what failed, or how full each memory was."""
    growth = passes_text(view.study)
    if failure is not None:
        text = failure_text(view.study, failure, plain).partition("\n")[0]
        needed, free = failure.needed_bytes, failure.free_bytes
        if needed is not None and free is not None:
            text += f". It needs {show_bytes(needed)} per bank of {failure.failure.memory}; {show_bytes(free)} is free"
        return Banner(text=f"{text}.", tone=Tone.WARNING if failure.recovered else Tone.BAD)
    if not view.used:
        return Banner(text="The log has no reading of allocated memory.", tone=Tone.WARNING)
    full = [
        f"{peak.memory} {100 * peak.state.allocated / peak.state.capacity:.1f} %"
        for peak in view.peaks.values()
        if peak.state.allocated and peak.state.capacity
    ]
    text = f"No allocation failed. Fullest: {', '.join(full)}." if full else "No allocation failed."
    return Banner(text=" ".join([text, *growth]), tone=Tone.WARNING if growth else Tone.GOOD)


def _steps_table(view: MemoryView) -> Table:
    """Why memory differs from the start of one pass to the start of the next."""
    steps = [step for memory in view.used for step in pass_steps(view.study, memory, limit=_MOST_STEPS)]
    programs = view.timeline.programs
    return Table(
        name="memory.steps",
        title="Changes between passes" if steps else "",
        columns=(
            Column(name="memory", title="Memory", values=[step.memory for step in steps], shown=Shown.TEXT),
            Column(
                name="passes",
                title="From the start of",
                values=[f"{run_text(programs[step.before])} to {run_text(programs[step.after])}" for step in steps],
                shown=Shown.TEXT,
            ),
            Column(
                name="change", title="Change per bank", values=[step.change_bytes for step in steps], shown=view.shown
            ),
            Column(name="parts", title="Cause", values=[parts_text(step.parts) for step in steps], shown=Shown.TEXT),
        ),
        empty="Memory is the same at the start of every pass.",
    )


def _cards(view: MemoryView, failure: OutOfMemory | None) -> tuple[Card, ...]:
    cards = [] if failure is None else [_failure_card(view, failure)]
    cards += [_peak_card(view, peak) for peak in view.peaks.values() if peak.state.allocated > 0]
    timeline = view.timeline
    counts = (
        f"{many(timeline.passes, 'run')} of {many(len(timeline.graphs), 'graph')}"
        if timeline.passes > 1
        else "one pass"
    )
    cards.append(Card(title="Ops", value=f"{len(timeline.ops):,}", detail=counts))
    unread = timeline.unread_count
    tone = Tone.WARNING if unread else Tone.PLAIN
    lines = Card(title="Unread lines", value=f"{unread:,}", detail=f"of {timeline.evidence.lines:,}", tone=tone)
    return (*cards, lines)


def _failure_card(view: MemoryView, failure: OutOfMemory) -> Card:
    where = "no program was running" if failure.op == NONE else f"op {failure.op}: {view.texts[failure.op]}"
    sizes = (
        ("needed", failure.needed_bytes),
        ("free", failure.free_bytes),
        ("largest free block", failure.largest_block_bytes),
    )
    numbers = ", ".join(f"{name} {show_bytes(size)}" for name, size in sizes if size is not None)
    detail = f"{where}. {failure.failure.memory} per bank: {numbers}" if numbers else where
    return Card(title="Out of memory", value=failure.verdict.value.replace("_", " "), detail=detail, tone=Tone.BAD)


def _peak_card(view: MemoryView, peak: Peak) -> Card:
    state = peak.state
    full = state.allocated / state.capacity if state.capacity else 0
    on_device = show_bytes(view.bytes_of(state.allocated * state.banks))
    detail = f"{100 * full:.1f} % of a bank; {on_device} in {state.banks} banks"
    return Card(
        title=f"Peak {peak.memory} per bank",
        value=f"{state.allocated / view.timeline.ticks_per_mib:.3f} MiB",
        detail=detail,
        tone=Tone.WARNING if full > _NEARLY_FULL else Tone.PLAIN,
    )


def _charts(view: MemoryView, memory: str) -> list[Chart]:
    peak = view.peaks[memory]
    series = [Series(column=f"allocated.{memory}", title="allocated", filled=True)]
    if memory not in view.used:
        return [_idle_chart(memory)]
    if memory in view.persistent:
        series.append(Series(column=f"persistent.{memory}", title="weights and caches", filled=True))
    if _marks_weights(view):
        series.append(Series(column=f"weights.{memory}", title="during weight preparation (const-eval)"))
    capacity = view.bytes_of(peak.state.capacity)
    charts = [
        Chart(
            name=f"memory.{memory}",
            title=f"{memory} per bank, before each op",
            table=OPS_TABLE,
            series=tuple(series),
            shown=view.shown,
            x_title="op",
            hover=hover_columns(view),
            marks=(*_peak_marks(view, peak), *_failure_marks(view, memory)),
            lines=(Line(value=capacity, text=f"capacity {show_bytes(capacity)}"),) if capacity else (),
            bands=bands(view),
            tab=memory,
        )
    ]
    if any(view.fragmentation(memory)):
        charts.append(
            Chart(
                name=f"fragmentation.{memory}",
                title=f"{memory} fragmentation: percent of free space outside the largest free block",
                table=OPS_TABLE,
                series=(Series(column=f"fragmentation.{memory}", title="fragmentation"),),
                x_title="op",
                hover=hover_columns(view),
                bands=bands(view),
                tab=memory,
            )
        )
    return charts


def _idle_chart(memory: str) -> Chart:
    return Chart(
        name=f"memory.{memory}",
        title=f"{memory}: no allocations",
        table=_IDLE_TABLE,
        series=(Series(column="allocated", title="allocated"),),
        shown=Shown.BYTES,
        x_title="op",
        tab=memory,
    )


def _marks_weights(view: MemoryView) -> bool:
    return len(view.timeline.ops) <= _MARKED_OPS and any(view.is_const_eval)


def _peak_marks(view: MemoryView, peak: Peak) -> tuple[Mark, ...]:
    if peak.op == NONE or not peak.state.allocated:
        return ()
    text = f"peak {show_bytes(view.bytes_of(peak.state.allocated))}"
    return (Mark(row=peak.op, series=f"allocated.{peak.memory}", text=text),)


def _failure_marks(view: MemoryView, memory: str) -> tuple[Mark, ...]:
    failure = explain_last_failure(view.study)
    if failure is None or failure.op == NONE or failure.failure.memory != memory:
        return ()
    needed = "" if failure.needed_bytes is None else f": needs {show_bytes(failure.needed_bytes)} more"
    return (Mark(row=failure.op, series=f"allocated.{memory}", text=f"failed here{needed}"),)


def hover_columns(view: MemoryView) -> tuple[str, ...]:
    """The columns named at the pointer, as far as the log tells them."""
    unknown = {"alive": not view.alive, "module": not view.has_modules}
    return tuple(name for name in HOVER if not unknown.get(name))


def bands(view: MemoryView) -> tuple[Band, ...]:
    """The passes as bands; none where there are too many to distinguish."""
    runs = [*view.outermost_runs(), *([] if _marks_weights(view) else view.const_eval_runs())]
    if len(runs) > _MOST_BANDS:
        return ()
    return tuple(
        Band(
            first=run.first_op,
            end=run.end_op,
            text=run.name if run.role is Role.CONST_EVAL else f"pass {run.pass_index}, graph {run.graph}",
        )
        for run in runs
        if run.end_op > run.first_op
    )


def _ops_table(view: MemoryView) -> Table:
    timeline = view.timeline
    columns = [Column(name="op", title="Index", values=range(len(timeline.ops)), shown=Shown.COUNT)]
    columns.append(Column(name="what", title="Op", values=view.texts, shown=Shown.TEXT))
    for memory in view.used:
        columns += [
            Column(name=f"effect.{memory}", title=f"{memory} change", values=view.effects(memory), shown=view.shown),
            Column(
                name=f"allocated.{memory}", title=f"{memory} before", values=view.allocated(memory), shown=view.shown
            ),
            Column(name=f"fragmentation.{memory}", values=view.fragmentation(memory)),
        ]
    columns.append(Column(name="where", title="Pass, graph, program", values=view.places, shown=Shown.TEXT))
    if view.has_modules:
        columns.append(Column(name="module", title="Module", values=view.modules, shown=Shown.TEXT))
    if view.alive:
        columns.append(Column(name="alive", values=view.alive))
    columns += [Column(name="line", title="Log line", values=timeline.ops.lines.values().tolist(), shown=Shown.COUNT)]
    columns += _weight_columns(view)
    columns += [Column(name=f"persistent.{name}", values=found) for name, found in view.persistent.items()]
    return Table(name=OPS_TABLE, title="Operations", columns=tuple(columns), empty="The log contains no ops.")


def _weight_columns(view: MemoryView) -> list[Column]:
    columns = []
    for memory in view.used if _marks_weights(view) else ():
        pairs = zip(view.allocated(memory), view.is_const_eval, strict=True)
        columns.append(Column(name=f"weights.{memory}", values=[size if inside else None for size, inside in pairs]))
    return columns


def _caveats(view: MemoryView) -> list[str]:
    caveats = []
    if "L1" in view.used and not view.timeline.allocations:
        caveats.append(L1_CAVEAT)
    peaks = [peak for peak in view.peaks.values() if peak.op == NONE and peak.state.allocated]
    for peak in peaks:
        moment = view.timeline.marks[peak.mark].moment
        caveats.append(f"The highest reading of {peak.memory} was taken {moment}, between ops, so the chart omits it.")
    if len(view.outermost_runs()) > _MOST_BANDS:
        caveats.append("Passes are not marked in the charts: there are too many of them.")
    return caveats
