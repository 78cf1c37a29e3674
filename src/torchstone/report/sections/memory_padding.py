"""Tile padding: what tensors take against what their elements need, over time and by op."""

from torchstone.memory.documents import padding_document
from torchstone.memory.usage import padded_ops
from torchstone.record.memory_findings import PaddedOp
from torchstone.report.section import Card, Chart, Column, ReportFolder, SectionView, Series, Shown, Table
from torchstone.report.sections.memory_timeline import bands
from torchstone.report.view.memory import MemoryView, memory_view
from torchstone.units import show_bytes

NAME = "padding"
_CURVES = "padding.curves"
_MOST_ROWS = 1000


def build(folder: ReportFolder) -> SectionView:
    """The view of padding."""
    view = memory_view(folder)
    found = padded_ops(view.study)[:_MOST_ROWS]
    return SectionView(
        name=NAME,
        title="Padding",
        document={"padding": [padding_document(view.study, one) for one in found]},
        cards=_cards(view, found),
        charts=tuple(_chart(view, memory) for memory in view.padded_and_logical),
        tables=(_table(view, found), _curves(view)),
    )


def _cards(view: MemoryView, found: tuple[PaddedOp, ...]) -> tuple[Card, ...]:
    if not found:
        return (Card(title="Padding", value="none", detail="no tensor is padded"),)
    worst = found[0]
    detail = f"op {worst.op}: {view.texts[worst.op]}. {worst.reason}"
    cards = [Card(title="Padding of the worst op", value=show_bytes(worst.overhead_bytes), detail=detail)]
    for name, live in view.live_at_peaks.items():
        share = 1 - live.logical_bytes / live.padded_bytes if live.padded_bytes else 0
        lost = show_bytes(live.padded_bytes - live.logical_bytes)
        cards.append(
            Card(title=f"Padding at the {name} peak", value=f"{100 * share:.0f} %", detail=f"{lost} on the device")
        )
    return tuple(cards)


def _chart(view: MemoryView, memory: str) -> Chart:
    return Chart(
        name=f"padding.{memory}",
        title=f"{memory}: bytes on the device, with padding and without",
        table=_CURVES,
        series=(
            Series(column=f"padded.{memory}", title="with padding", filled=True),
            Series(column=f"logical.{memory}", title="without padding", filled=True),
        ),
        shown=Shown.BYTES,
        x_title="op",
        hover=("what", "alive") if view.alive else ("what",),
        bands=bands(view),
        tab=memory,
        note="Includes the tensors named in the log: op results, arguments and prepared weights.",
    )


def _curves(view: MemoryView) -> Table:
    """A table of its own, so that a page of a million ops decodes it only when it is looked at."""
    columns = [Column(name="what", values=view.texts)]
    if view.alive:
        columns.append(Column(name="alive", values=view.alive))
    for memory, (padded, logical) in view.padded_and_logical.items():
        columns += [
            Column(name=f"padded.{memory}", values=padded),
            Column(name=f"logical.{memory}", values=logical),
        ]
    return Table(name=_CURVES, columns=tuple(columns))


def _table(view: MemoryView, found: tuple[PaddedOp, ...]) -> Table:
    types = view.timeline.types
    return Table(
        name="padding.ops",
        title="Ops by padding",
        columns=(
            Column(name="op", title="Index", values=[one.op for one in found], shown=Shown.COUNT),
            Column(name="what", title="Op", values=[view.texts[one.op] for one in found], shown=Shown.TEXT),
            Column(name="lost", title="Padding", values=[one.overhead_bytes for one in found], shown=Shown.BYTES),
            Column(
                name="logical", title="Logical size", values=[one.logical_bytes for one in found], shown=Shown.BYTES
            ),
            Column(name="padded", title="Padded size", values=[one.padded_bytes for one in found], shown=Shown.BYTES),
            Column(name="tensor", title="Tensor", values=[types[one.type].text for one in found], shown=Shown.TEXT),
            Column(name="why", title="Reason", values=[one.reason for one in found], shown=Shown.TEXT),
            Column(name="runs", title="Runs", values=[one.runs for one in found], shown=Shown.COUNT),
        ),
        empty="No op result is padded.",
    )
