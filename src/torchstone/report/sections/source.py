"""The model's own code, line by line: FLOPs, bytes, new tensors, and how the modules that a line calls fare."""

from collections.abc import Sequence

from torchstone.cost.formats import with_formats
from torchstone.record import codec
from torchstone.record.check import CheckResult
from torchstone.record.cost import CostTable, SignatureCost
from torchstone.record.trace import Trace
from torchstone.report.section import Column, ReportFolder, SectionView, Shown, Table, worst
from torchstone.report.sections import check, cost
from torchstone.report.view.source_lines import Amounts, FunctionRow, LineRow, function_rows
from torchstone.units import many

NAME = "source"
_LEAST = "numbers that miss them have a \N{GREATER-THAN OR EQUAL TO} sign"


def build(folder: ReportFolder) -> SectionView | None:
    """The view of the code; None where the lines are not known, or not to be named."""
    trace, prices = _priced(folder)
    rows = function_rows(trace, prices) if folder.source else ()
    if not rows:
        return None
    statuses = _statuses(folder)
    return SectionView(
        name=NAME,
        title="Source",
        document={"functions": [_document(row, priced=prices is not None) for row in rows]},
        tables=(_functions(rows, priced=prices is not None), _lines(rows, statuses, priced=prices is not None)),
        notes=_notes(rows, priced=prices is not None),
        settings={"priced": prices is not None, "checked": statuses is not None},
        script="source.js",
    )


def _priced(folder: ReportFolder) -> tuple[Trace, Sequence[SignatureCost] | None]:
    """The trace, and what each of its signatures costs; None without the costs of this capture."""
    if not folder.has(cost.FILE):
        return folder.trace, None
    table = codec.load(folder.path / cost.FILE, CostTable)
    trace = with_formats(folder.trace, table.conventions.formats)
    return (trace, table.signatures) if cost.is_of(table, trace) else (folder.trace, None)


def _statuses(folder: ReportFolder) -> Sequence[str] | None:
    """The status of each module on the backend; None without a check of this model."""
    if not folder.has(check.FILE):
        return None
    return check.module_statuses(codec.load(folder.path / check.FILE, CheckResult), folder.trace) or None


def _notes(rows: Sequence[FunctionRow], *, priced: bool) -> tuple[str, ...]:
    words = "A line has the cost of all ops that run because of it; code of torch is part of the line that calls it."
    unsized = max(row.amounts.unsized for row in rows)
    sizes = (f"The size of {many(unsized, 'new tensor')} is not known; {_LEAST}.",) if unsized else ()
    if not priced:
        return (words, *sizes, "Without costs: run `torchstone cost` on this folder to see FLOPs and bytes.")
    missing = max(row.amounts.unpriced for row in rows)
    return (
        (words, f"{many(missing, 'op call has', 'op calls have')} no price; {_LEAST}.", *sizes)
        if missing
        else (words, *sizes)
    )


def _functions(rows: Sequence[FunctionRow], *, priced: bool) -> Table:
    return Table(
        name="functions",
        title="Functions",
        columns=(
            Column(name="name", title="Function", values=[row.name for row in rows], shown=Shown.TEXT),
            *_amount_columns([row.amounts for row in rows], priced=priced),
            Column(
                name="place", title="File", values=[f"{row.file}:{row.lines[0].number}" if row.lines else row.file
                                                    for row in rows], shown=Shown.TEXT,
            ),
        ),
    )  # fmt: skip


def _lines(rows: Sequence[FunctionRow], statuses: Sequence[str] | None, *, priced: bool) -> Table:
    lines = [line for row in rows for line in row.lines]
    words = [_status(line, statuses) for line in lines]
    return Table(
        name="source_lines",
        columns=(
            Column(name="function", values=[number for number, row in enumerate(rows) for _ in row.lines]),
            Column(name="line", values=[line.number for line in lines]),
            Column(name="text", values=[line.text for line in lines]),
            *_amount_columns([line.amounts for line in lines], priced=priced),
            Column(name="status", values=words),
        ),
    )


def _amount_columns(amounts: Sequence[Amounts | None], *, priced: bool) -> tuple[Column, ...]:
    flops = [one.flops if one is not None and priced else None for one in amounts]
    moved = [one.moved_bytes if one is not None and priced else None for one in amounts]
    shown = Shown.COUNT if priced else Shown.HIDDEN
    return (
        Column(name="flops", title="FLOPs", values=flops, shown=shown),
        Column(name="moved", title="Moved", values=moved, shown=Shown.BYTES if priced else Shown.HIDDEN),
        Column(
            name="made", title="New tensors", values=[None if one is None else one.made_bytes for one in amounts],
            shown=Shown.BYTES,
        ),
        Column(name="unsized", values=[0 if one is None else one.unsized for one in amounts]),
        Column(name="unpriced", values=[0 if one is None else one.unpriced for one in amounts]),
        Column(name="ops", title="Ops", values=[None if one is None else one.ops for one in amounts],
               shown=Shown.COUNT),
    )  # fmt: skip


def _status(line: LineRow, statuses: Sequence[str] | None) -> str:
    """The worst status of the modules that the line calls."""
    return worst([statuses[module] for module in line.modules]) if statuses is not None and line.modules else ""


def _document(row: FunctionRow, *, priced: bool) -> dict[str, object]:
    return {
        "name": row.name,
        "file": row.file,
        **_numbers(row.amounts, priced=priced),
        "lines": [
            {"line": line.number, **_numbers(line.amounts, priced=priced)}
            for line in row.lines
            if line.amounts is not None
        ],
    }


def _numbers(amounts: Amounts, *, priced: bool) -> dict[str, int]:
    costs = {"flops": amounts.flops, "moved_bytes": amounts.moved_bytes, "unpriced": amounts.unpriced} if priced else {}
    return {"ops": amounts.ops, **costs, "made_bytes": amounts.made_bytes, "unsized": amounts.unsized}
