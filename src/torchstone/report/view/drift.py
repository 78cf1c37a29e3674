"""The error over the depth of a model: a chart with what each layer adds and the total, and the table behind it."""

from torchstone.record.check import Drift
from torchstone.report.section import Band, Chart, Column, Mark, Series, Shape, Shown, Table

_LAYERS = "check.drift"


def drift_table(found: Drift) -> Table:
    """A row for each layer."""
    layers = found.layers
    return Table(
        name=_LAYERS,
        title="Error over depth",
        columns=(
            Column(name="layer", title="Layer", values=[one.path for one in layers], shown=Shown.TEXT),
            Column(name="class", title="Class", values=[one.class_name for one in layers], shown=Shown.TEXT),
            _numbers("added", "Adds (relative error)", [one.added for one in layers]),
            _numbers("added_noise", "Adds, times the noise", [one.added_noise_multiple for one in layers]),
            _numbers("alone", "Adds alone, on golden inputs", [one.added_alone for one in layers]),
            _numbers("inherited", "Inherits", [one.inherited for one in layers]),
            _numbers("factor", "Amplifies by", [one.amplification for one in layers]),
            _numbers("total", "Total (relative error)", [one.total for one in layers]),
            _numbers("total_noise", "Total, times the noise", [one.total_noise_multiple for one in layers]),
            _numbers("share", "Share of the model's error", [one.share for one in layers]),
            Column(name="note", title="Note", values=[one.note for one in layers], shown=Shown.TEXT),
        ),
    )


def drift_chart(found: Drift) -> Chart:
    """What each layer adds, and the error at its outputs."""
    places = {one.path: place for place, one in enumerate(found.layers)}
    bands = [Band(first=places[path], end=places[path] + 1, text=path) for path in found.culprits if path in places]
    first = found.first_beyond_noise
    marks = [] if first is None else [Mark(row=places[first], series="total", text="first layer beyond noise")]
    return Chart(
        name="check.drift.chart",
        title="Relative error over depth",
        table=_LAYERS,
        series=(Series(column="total", title="total"), Series(column="added", title="added by the layer")),
        shape=Shape.LINE,
        shown=Shown.NUMBER,
        x_title="layer",
        x_column="layer",
        hover=("layer", "factor", "total_noise"),
        marks=tuple(marks),
        bands=tuple(bands),
        note=f"{found.verdict}.",
    )


def _numbers(name: str, title: str, values: list[float | None]) -> Column:
    return Column(name=name, title=title, values=values, shown=Shown.NUMBER)
