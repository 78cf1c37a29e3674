"""What `torchstone cost --sweep` prints: a line for each size, with a bar for its FLOPs on a logarithmic scale."""

from collections.abc import Sequence
from math import log2

from torchstone.record.cost import CostTable
from torchstone.report.cost_text import unit_of
from torchstone.report.text import Paint, aligned, plain
from torchstone.units import show_bytes, show_count, show_seconds

_WIDEST = 24


def sweep_text(parameter: str, points: Sequence[tuple[int, CostTable]], paint: Paint = plain) -> str:
    """One line for each value of the parameter."""
    first = points[0][1]
    header = [parameter, unit_of(first), "matmul", "moved", "fused", "peak", f"{unit_of(first)} per byte"]
    predicted = first.prediction is not None
    lines: list[list[str]] = [[*header, *(["predicted", "fits"] if predicted else []), f"log {unit_of(first)}"]]
    bars = _bars([table.totals.flops for _, table in points])
    for (value, table), bar in zip(points, bars, strict=True):
        lines.append([*_cells(value, table), *(_predicted(table) if predicted else []), bar])
    text = aligned(lines, right=range(len(lines[0]) - 1), paint=paint)
    if len(points) > 1 and all(table.totals == first.totals for _, table in points):
        text += f"\n\nnote  {parameter} changes nothing here: the model or its inputs do not take it"
    return text


def sweep_csv(parameter: str, points: Sequence[tuple[int, CostTable]]) -> str:
    """One line for each value of the parameter, for a spreadsheet."""
    fields = ("flops", "matmul_flops", "bytes_read", "bytes_written", "peak_bytes", "unpriced_calls")
    lines = [",".join((parameter, *fields, "fused_bytes", "predicted_s", "fits"))]
    for value, table in points:
        found = table.prediction
        cells = [value, *(getattr(table.totals, field) for field in fields), table.traffic.fused.total_bytes]
        lines.append(",".join(map(str, [*cells, *(("", "") if found is None else (found.total_s, found.fits))])))
    return "\n".join(lines) + "\n"


def _cells(value: int, table: CostTable) -> list[str]:
    totals, moved = table.totals, table.traffic.unfused.total_bytes
    return [
        f"{value:,}",
        show_count(totals.flops),
        show_count(totals.matmul_flops),
        show_bytes(moved),
        show_bytes(table.traffic.fused.total_bytes),
        show_bytes(totals.peak_bytes),
        f"{totals.flops / moved:.1f}" if moved else "-",
    ]


def _predicted(table: CostTable) -> list[str]:
    found = table.prediction
    return ["-", "-"] if found is None else [show_seconds(found.total_s), "yes" if found.fits else "no"]


def _bars(values: Sequence[int]) -> list[str]:
    heights = [log2(value) if value > 0 else 0.0 for value in values]
    lowest, highest = min(heights), max(heights)
    spread = highest - lowest or 1.0
    return ["█" * (1 + round((_WIDEST - 1) * (height - lowest) / spread)) for height in heights]
