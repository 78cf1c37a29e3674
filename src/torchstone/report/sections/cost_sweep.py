"""What one model costs at several sizes: a bar for each, and the numbers behind them."""

from collections.abc import Callable

from torchstone.errors import UnreadableFileError
from torchstone.record.codec import load
from torchstone.record.cost import CostSweep, SweepPoint
from torchstone.report.section import (
    Banner,
    Card,
    Chart,
    Column,
    ReportFolder,
    SectionView,
    Series,
    Shape,
    Shown,
    Table,
    Tone,
)
from torchstone.units import show_bytes, show_count, show_seconds

NAME = "cost_sweep"
FILE = "cost_sweep.json"
_POINTS = "cost_sweep.points"


def build(folder: ReportFolder) -> SectionView:
    """The view of a sweep."""
    sweep = load(folder.path / FILE, CostSweep)
    if not sweep.points:
        msg = f"{folder.path / FILE} contains no sizes; run `torchstone cost --sweep` again"
        raise UnreadableFileError(msg)
    notes = [f"Times are predicted with the roofline model of {sweep.hardware}, not measured"] if sweep.hardware else []
    unpriced = sorted({op for point in sweep.points for op in point.unpriced})
    if unpriced:
        notes.append(f"Ops without a price, not included in any total: {', '.join(unpriced)}")
    failing = [one for one in sweep.points if one.failure]
    notes += [f"{sweep.parameter} = {one.value:,}: the forward pass fails: {one.failure}" for one in failing]
    where = ", ".join(f"{one.value:,}" for one in failing)
    return SectionView(
        name=NAME,
        title="Sizes",
        banner=Banner(text=f"The forward pass fails at {sweep.parameter} {where}", tone=Tone.BAD) if failing else None,
        document={"model": sweep.model, "parameter": sweep.parameter, "sizes": len(sweep.points)},
        cards=_cards(sweep),
        charts=_charts(sweep),
        tables=(_table(sweep),),
        notes=tuple(notes),
        subject=sweep.model,
    )


def _cards(sweep: CostSweep) -> tuple[Card, ...]:
    """From the first size to the last."""
    ran = [one for one in sweep.points if not one.failure]
    if not ran:
        return ()
    first, last = ran[0], ran[-1]
    sizes = f"{sweep.parameter} {first.value:,} to {last.value:,}"
    cards = [
        Card(
            title=_flops(sweep),
            value=f"{show_count(first.totals.flops)} to {show_count(last.totals.flops)}",
            detail=sizes,
        ),
        Card(
            title="Peak memory",
            value=f"{show_bytes(first.totals.peak_bytes)} to {show_bytes(last.totals.peak_bytes)}",
            detail=sizes,
        ),
    ]
    if first.predicted_s is not None and last.predicted_s is not None:
        value = f"{show_seconds(first.predicted_s)} to {show_seconds(last.predicted_s)}"
        cards.append(Card(title="Predicted time", value=value, detail=sweep.hardware))
    return tuple(cards)


def _charts(sweep: CostSweep) -> tuple[Chart, ...]:
    charts = [
        _chart(sweep, "flops", _flops(sweep), Shown.COUNT, (Series(column="flops", title=_flops(sweep)),)),
        _chart(
            sweep,
            "moved",
            "Bytes moved",
            Shown.BYTES,
            (
                Series(column="unfused", title="unfused"),
                Series(column="fused", title="fused"),
                Series(column="compulsory", title="compulsory"),
            ),
        ),
        _chart(sweep, "peak", "Peak memory", Shown.BYTES, (Series(column="peak", title="peak"),)),
    ]
    if sweep.hardware:
        title = f"Predicted time on {sweep.hardware}"
        charts.append(_chart(sweep, "time", title, Shown.SECONDS, (Series(column="predicted", title="predicted"),)))
    return tuple(charts)


def _chart(sweep: CostSweep, name: str, title: str, shown: Shown, series: tuple[Series, ...]) -> Chart:
    return Chart(
        name=f"cost_sweep.{name}",
        title=f"{title} by {sweep.parameter}",
        table=_POINTS,
        series=series,
        shape=Shape.BARS,
        shown=shown,
        x_title=sweep.parameter,
        x_column="value",
        tab=title.partition(" on ")[0],
    )


def _table(sweep: CostSweep) -> Table:
    points = sweep.points

    def column(name: str, title: str, value: Callable[[SweepPoint], float | None], shown: Shown) -> Column:
        values = [None if one.failure else value(one) for one in points]  # what ran before a failure is not a cost
        return Column(name=name, title=title, values=values, shown=shown)

    predicted = (
        column("predicted", "Predicted time", lambda one: one.predicted_s, Shown.SECONDS),
        Column(
            name="fits",
            title="Fits",
            values=["fails" if one.failure else one.verdict.value if one.verdict else "" for one in points],
            shown=Shown.TEXT,
        ),
    )
    return Table(
        name=_POINTS,
        title=f"Costs by {sweep.parameter}",
        columns=(
            Column(name="value", title=sweep.parameter, values=[one.value for one in points], shown=Shown.COUNT),
            column("flops", _flops(sweep), lambda one: one.totals.flops, Shown.COUNT),
            column("matmul", "Matmul FLOPs", lambda one: one.totals.matmul_flops, Shown.COUNT),
            column("unfused", "Unfused", lambda one: one.traffic.unfused.total_bytes, Shown.BYTES),
            column("fused", "Fused", lambda one: one.traffic.fused.total_bytes, Shown.BYTES),
            column("compulsory", "Compulsory", lambda one: one.traffic.compulsory.total_bytes, Shown.BYTES),
            column("peak", "Peak", lambda one: one.totals.peak_bytes, Shown.BYTES),
            *(predicted if sweep.hardware else ()),
        ),
    )


def _flops(sweep: CostSweep) -> str:
    return "FLOPs" if sweep.conventions.multiply_add > 1 else "Multiply-adds"
