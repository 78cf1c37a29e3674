"""Two runs side by side: memory over aligned ops, peaks, and what differs."""

from collections.abc import Sequence

from torchstone.record.codec import load
from torchstone.record.memory import NONE
from torchstone.record.memory_findings import Change, MemoryComparison, OpDifference, Peak
from torchstone.report.section import Card, Chart, Column, ReportFolder, SectionView, Series, Shown, Table, Tone

NAME = "comparison"
FILE = "memory_comparison.json"
FILES = (FILE,)
_ROWS = "comparison.rows"
_MIB = 1 << 20


def build(folder: ReportFolder) -> SectionView:
    """The view of a comparison."""
    found = load(folder.path / FILE, MemoryComparison)
    return SectionView(
        name=NAME,
        title="Comparison",
        document={
            "first": found.first_source,
            "second": found.second_source,
            "same": found.same_ops,
            "removed": found.removed_ops,
            "added": found.added_ops,
        },
        cards=_cards(found),
        charts=(_chart(found),),
        tables=(_rows_table(found), _differences_table(found)),
    )


def _cards(found: MemoryComparison) -> tuple[Card, ...]:
    cards = [_peak_card(found, mine, other) for mine, other in found.peaks if _is_used(mine) or _is_used(other)]
    where = "the op sequences are identical"
    if found.first_difference is not None:
        where = f"first difference at {_first_text(found)}"
    value = f"{found.removed_ops:,} removed, {found.added_ops:,} added"
    return (*cards, Card(title="Ops", value=value, detail=f"{found.same_ops:,} identical; {where}"))


def _first_text(found: MemoryComparison) -> str:
    first = next(row for row in found.differences if row.change is not Change.SAME)
    return first.text


def _is_used(peak: Peak | None) -> bool:
    return peak is not None and peak.state.allocated > 0


def _peak_card(found: MemoryComparison, mine: Peak | None, other: Peak | None) -> Card:
    name = mine.memory if mine is not None else other.memory if other is not None else ""
    if mine is None or other is None:
        return Card(title=f"Peak {name} per bank", value="in one run only", detail="")
    before, after = (peak.state.allocated / found.ticks_per_mib for peak in (mine, other))
    return Card(
        title=f"Peak {name} per bank",
        value=f"{after - before:+.3f} MiB",
        detail=f"{before:.3f} before, {after:.3f} after",
        tone=Tone.BAD if after > before else Tone.GOOD if after < before else Tone.PLAIN,
    )


def _chart(found: MemoryComparison) -> Chart:
    return Chart(
        name="comparison",
        title=f"{found.memory} per bank before each op, the ops of both runs aligned",
        table=_ROWS,
        series=(Series(column="first", title="first"), Series(column="second", title="second")),
        shown=Shown.BYTES,
        x_title="aligned op",
        hover=("what", "first_op", "second_op"),
        note=f"first: {found.first_source}; second: {found.second_source}. For each graph: "
        "const-evals, then the last complete pass.",
    )


def _rows_table(found: MemoryComparison) -> Table:
    rows = found.rows
    texts = [rows.texts[text] for text in rows.text_of.values()]
    return Table(
        name=_ROWS,
        title="Ops, aligned",
        columns=(
            Column(name="what", title="Op", values=texts, shown=Shown.TEXT),
            Column(name="first_op", title="Index in first", values=_known(rows.first_ops.values()), shown=Shown.COUNT),
            Column(
                name="second_op", title="Index in second", values=_known(rows.second_ops.values()), shown=Shown.COUNT
            ),
            Column(name="first", title="First", values=_bytes(found, rows.first_allocated.values()), shown=Shown.BYTES),
            Column(
                name="second", title="Second", values=_bytes(found, rows.second_allocated.values()), shown=Shown.BYTES
            ),
        ),
        empty="No ops to compare.",
    )


def _differences_table(found: MemoryComparison) -> Table:
    rows = sorted(found.differences, key=lambda row: -abs(_difference(row)))
    effects = [
        (name, title, _bytes(found, [_ticks(row, name) for row in rows], unknown=None))
        for name, title in (("first", "Effect in the first"), ("second", "Effect in the second"))
    ]
    return Table(
        name="comparison.differences",
        title=f"Differences in {found.memory}, largest first",
        columns=(
            Column(
                name="change",
                title="Change",
                values=["effect changed" if row.change is Change.SAME else row.change.value for row in rows],
                shown=Shown.TEXT,
            ),
            Column(name="what", title="Op", values=[row.text for row in rows], shown=Shown.TEXT),
            *(Column(name=name, title=title, values=values, shown=Shown.BYTES) for name, title, values in effects),
        ),
        empty="No differences.",
    )


def _ticks(row: OpDifference, name: str) -> int | None:
    return row.first_effect_ticks if name == "first" else row.second_effect_ticks


def _difference(row: OpDifference) -> int:
    return (row.second_effect_ticks or 0) - (row.first_effect_ticks or 0)


def _known(values: Sequence[int]) -> list[int | None]:
    return [None if value == NONE else value for value in values]


def _bytes(found: MemoryComparison, ticks: Sequence[int | None], *, unknown: int | None = NONE) -> list[int | None]:
    return [None if one is None or one == unknown else round(one * _MIB / found.ticks_per_mib) for one in ticks]
