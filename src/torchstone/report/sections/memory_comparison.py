"""Runs side by side: memory over aligned ops, peaks, and what differs from the first."""

from collections.abc import Sequence
from pathlib import Path

from torchstone.record.codec import load
from torchstone.record.memory import NONE
from torchstone.record.memory_findings import Change, MemoryComparison, OpDifference, Peak, RunSummary
from torchstone.report.section import Card, Chart, Column, ReportFolder, SectionView, Series, Shown, Table, Tone

NAME = "comparison"
FILE = "memory_comparison.json"
FILES = (FILE,)
_ROWS = "comparison.rows"
_MIB = 1 << 20


def build(folder: ReportFolder) -> SectionView:
    """The view of a comparison."""
    found = load(folder.path / FILE, MemoryComparison)
    if found.others:
        return _many(found)
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


# --- More than two runs ---


def _many(found: MemoryComparison) -> SectionView:
    """Every run beside the first: a row and a line each."""
    each = (found, *found.others)
    names = _names([one.source for one in found.runs])
    return SectionView(
        name=NAME,
        title="Comparison",
        document={"runs": [one.source for one in found.runs]},
        cards=tuple(_run_card(found, one, name) for one, name in zip(found.runs[1:], names[1:], strict=True)),
        charts=(_many_chart(found, names),),
        tables=(_runs_table(found, names), _many_rows(each, names), _many_differences(each, names)),
    )


def _names(sources: Sequence[str]) -> list[str]:
    """The shortest ends of the paths that differ from each other, numbered where nothing differs."""
    for parts in range(1, 6):
        names = ["/".join(Path(source).parts[-parts:]) for source in sources]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {source}" for number, source in enumerate(sources, start=1)]


def _run_card(found: MemoryComparison, run: RunSummary, name: str) -> Card:
    before, after = (one.peak_ticks.get(found.memory, 0) / found.ticks_per_mib for one in (found.runs[0], run))
    return Card(
        title=f"Peak {found.memory} per bank, {name}",
        value=f"{after - before:+.3f} MiB",
        detail=f"{before:.3f} in the first run, {after:.3f} here; {run.outcome}",
        tone=Tone.BAD if after > before else Tone.GOOD if after < before else Tone.PLAIN,
    )


def _many_chart(found: MemoryComparison, names: Sequence[str]) -> Chart:
    return Chart(
        name="comparison",
        title=f"{found.memory} per bank before each op of the first run, and before the same op of the others",
        table=_ROWS,
        series=tuple(Series(column=f"run{number}", title=name) for number, name in enumerate(names)),
        shown=Shown.BYTES,
        x_title="op of the first run",
        hover=("what", "op"),
        note="For each graph: const-evals, then the last complete pass. A gap is an op that a run does not have.",
    )


def _many_rows(each: Sequence[MemoryComparison], names: Sequence[str]) -> Table:
    first = each[0].rows
    ops = [op for op in first.first_ops.values() if op != NONE]
    texts = [
        first.texts[text]
        for op, text in zip(first.first_ops.values(), first.text_of.values(), strict=True)
        if op != NONE
    ]
    own = zip(first.first_ops.values(), first.first_allocated.values(), strict=True)
    columns = [_bytes(each[0], [ticks for op, ticks in own if op != NONE])]
    for one in each:
        known = dict(zip(one.rows.first_ops.values(), one.rows.second_allocated.values(), strict=True))
        columns.append(_bytes(one, [known.get(op, NONE) for op in ops]))
    return Table(
        name=_ROWS,
        title="Ops of the first run",
        columns=(
            Column(name="what", title="Op", values=texts, shown=Shown.TEXT),
            Column(name="op", title="Index", values=ops, shown=Shown.COUNT),
            *(
                Column(name=f"run{number}", title=name, values=values, shown=Shown.BYTES)
                for number, (name, values) in enumerate(zip(names, columns, strict=True))
            ),
        ),
        empty="No ops to compare.",
    )


def _runs_table(found: MemoryComparison, names: Sequence[str]) -> Table:
    used = [memory for memory in found.runs[0].peak_ticks if any(one.peak_ticks.get(memory) for one in found.runs)]
    return Table(
        name="comparison.runs",
        title="Runs",
        columns=(
            Column(name="run", title="Run", values=list(names), shown=Shown.TEXT),
            *(
                Column(
                    name=memory,
                    title=f"{memory} peak per bank",
                    values=_bytes(found, [one.peak_ticks.get(memory) for one in found.runs]),
                    shown=Shown.READING,
                )
                for memory in used
            ),
            Column(name="operations", title="Ops", values=[one.operations for one in found.runs], shown=Shown.COUNT),
            Column(name="passes", title="Passes", values=[one.passes for one in found.runs], shown=Shown.COUNT),
            Column(name="outcome", title="Outcome", values=[one.outcome for one in found.runs], shown=Shown.TEXT),
        ),
    )


def _many_differences(each: Sequence[MemoryComparison], names: Sequence[str]) -> Table:
    rows = [(name, row) for one, name in zip(each, names[1:], strict=True) for row in one.differences]
    rows.sort(key=lambda pair: -abs(_difference(pair[1])))
    effects = [
        (name, title, _bytes(each[0], [_ticks(row, name) for _, row in rows], unknown=None))
        for name, title in (("first", "Effect in the first"), ("second", "Effect in this run"))
    ]
    changes = ["effect changed" if row.change is Change.SAME else row.change.value for _, row in rows]
    return Table(
        name="comparison.differences",
        title=f"Differences from the first run in {each[0].memory}, largest first",
        columns=(
            Column(name="run", title="Run", values=[name for name, _ in rows], shown=Shown.TEXT),
            Column(name="change", title="Change", values=changes, shown=Shown.TEXT),
            Column(name="what", title="Op", values=[row.text for _, row in rows], shown=Shown.TEXT),
            *(Column(name=name, title=title, values=values, shown=Shown.BYTES) for name, title, values in effects),
        ),
        empty="No differences.",
    )
