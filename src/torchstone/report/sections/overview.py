"""The first page: totals, provenance, what is unknown, and where a capture failed."""

import msgspec

from torchstone.report.section import Card, ReportFolder, SectionView, Tone
from torchstone.report.view.overview import OverviewView, Totals, overview
from torchstone.units import many, show_bytes, show_count

NAME = "overview"


def build(folder: ReportFolder) -> SectionView:
    """The view of the first page."""
    view = overview(folder.trace, source=folder.source)
    document = msgspec.to_builtins(view)
    return SectionView(
        name=NAME,
        title="Overview",
        document=document,
        cards=_cards(view),
        notes=view.unknown,
        settings={name: document.get(name) for name in ("facts", "failure", "by_class")},
        script="overview.js",
    )


def _cards(view: OverviewView) -> tuple[Card, ...]:
    totals = view.totals
    cards = [
        Card(title="Parameters", value=show_count(totals.parameters), detail=_parameter_detail(totals)),
        Card(title="Weights", value=show_bytes(totals.parameter_bytes), detail=_weight_detail(totals)),
        Card(
            title="Modules",
            value=f"{totals.modules:,}",
            detail=f"{totals.unique_modules:,} distinct, {totals.called_modules:,} called",
        ),
        Card(
            title="Op calls",
            value=f"{totals.ops:,}",
            detail=f"{many(totals.distinct_ops, 'operator')}, {many(totals.distinct_signatures, 'distinct signature')}",
        ),
    ]
    if view.failure is not None:
        where = view.failure.module or "the model itself"
        cards.insert(0, Card(title="Capture", value="Failed", detail=f"in {where}", tone=Tone.BAD))
    return tuple(cards)


def _parameter_detail(totals: Totals) -> str:
    if totals.parameters == 0:
        return "the model has none"
    trainable = "all" if totals.trainable_parameters == totals.parameters else f"{totals.trainable_parameters:,}"
    return f"{totals.parameters:,}, {trainable} trainable"


def _weight_detail(totals: Totals) -> str:
    buffers = f"plus {show_bytes(totals.buffer_bytes)} of buffers"
    return f"{buffers}; {totals.unsized_parameters} of unknown size" if totals.unsized_parameters else buffers
