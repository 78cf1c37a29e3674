"""Sections with charts, as the parts to come will have them."""

import random
from pathlib import Path

from torchstone.report.page import assemble, render_page
from torchstone.report.section import (
    Band,
    Card,
    Chart,
    Column,
    Line,
    Mark,
    ReportFolder,
    Section,
    SectionView,
    Series,
    Shown,
    Table,
)

PEAK_ROW = 765_432
PEAK_BYTES = 61_234_560


def timeline(rows: int) -> SectionView:
    """Two memory types over so many operations, with one narrow peak."""
    noise = random.Random(1)  # noqa: S311 - a pattern, not a secret
    dram = [32 * ((row % 64) * 3000 + row // 5000 + noise.randrange(500)) for row in range(rows)]
    peak_row = min(PEAK_ROW, rows - 1)
    if rows:
        dram[peak_row] = PEAK_BYTES
    l1 = [32 * ((row * 7) % 977) for row in range(rows)]
    ops = Table(
        name="memory.ops",
        title="Operations",
        empty="No operation was logged.",
        columns=(
            Column(
                name="op", title="Operation", values=[f"ttnn.<b>op_{row % 64}" for row in range(rows)], shown=Shown.OP
            ),
            Column(name="DRAM", title="DRAM", values=dram, shown=Shown.BYTES),
            Column(name="L1", title="L1", values=l1, shown=Shown.BYTES),
        ),
    )
    bands = tuple(
        Band(first=place * rows // 10, end=(place + 1) * rows // 10, text=f"layer {place}") for place in range(10)
    )
    charts = tuple(
        Chart(
            name=f"memory-{kind}",
            title=f"{kind} over operations",
            table="memory.ops",
            series=(Series(column=kind, title=kind, filled=True),),
            shown=Shown.BYTES,
            x_title="operation",
            hover=("op",),
            marks=(Mark(row=peak_row, series=kind, text="peak"),) if rows else (),
            lines=(Line(value=64 << 20, text="capacity 64 MiB"),),
            bands=bands,
            tab=kind,
        )
        for kind in ("DRAM", "L1")
    )
    return SectionView(
        name="memory",
        title="Memory",
        document={"operations": rows},
        cards=(Card(title="Peak", value="58.4 MiB"),),
        charts=charts,
        tables=(ops,),
    )


def chart_page(rows: int, path: Path) -> Path:
    """A page with the section above and nothing else."""
    (path / "log.json").write_text("{}")
    section = Section(name="memory", files=("log.json",), build=lambda _: timeline(rows))
    page = path / "report.html"
    page.write_bytes(render_page(assemble(ReportFolder(path), (section,))))
    return page
