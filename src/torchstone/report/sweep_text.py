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
    lines: list[list[str]] = [[*header, *(["predicted", "fits"] if predicted else []), ""]]
    bars = _bars([table.totals.flops for _, table in points])
    for (value, table), bar in zip(points, bars, strict=True):
        lines.append([*_cells(value, table), *(_predicted(table) if predicted else []), bar])
    return aligned(lines, right=range(len(lines[0]) - 1), paint=paint)


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
