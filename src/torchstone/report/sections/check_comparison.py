"""Several backends side by side: the status of each module on each of them."""

import msgspec

from torchstone.record import codec
from torchstone.record.check import CheckComparison
from torchstone.report.section import Card, Column, ReportFolder, SectionView, Shown, Table, Tone
from torchstone.units import many

NAME = "backends"
FILE = "check_comparison.json"


def build(folder: ReportFolder) -> SectionView:
    """The view of a comparison of checks."""
    found = codec.load(folder.path / FILE, CheckComparison)
    return SectionView(
        name=NAME,
        title="Backends",
        document=msgspec.to_builtins(found),
        cards=tuple(_card(found, side) for side in range(len(found.sides))),
        tables=(_modules(found), _findings(found)),
        notes=found.notes,
    )


def _card(found: CheckComparison, side: int) -> Card:
    working, calls = found.working_calls[side], found.op_calls[side]
    return Card(
        title=found.sides[side],
        value="passed" if found.passed[side] else f"{working / max(calls, 1):.1%} passing",
        detail=f"{working:,} of {many(calls, 'op call')}, {many(len(found.findings[side]), 'finding')}",
        tone=Tone.GOOD if found.passed[side] else Tone.BAD,
    )


def _modules(found: CheckComparison) -> Table:
    rows = found.modules
    return Table(
        name="backends.modules",
        title="Unique modules",
        columns=(
            Column(
                name="module", title="Module", values=[row.module_path or "(the model)" for row in rows],
                shown=Shown.TEXT,
            ),
            Column(
                name="class", title="Class", values=[row.class_name.rpartition(".")[2] for row in rows],
                shown=Shown.TEXT,
            ),
            *(
                Column(
                    name=f"side{side}", title=title, values=[row.statuses[side] or "not run" for row in rows],
                    shown=Shown.STATUS,
                )
                for side, title in enumerate(found.sides)
            ),
        ),
    )  # fmt: skip


def _findings(found: CheckComparison) -> Table:
    pairs = [(found.sides[side], what) for side, named in enumerate(found.findings) for what in named]
    return Table(
        name="backends.findings",
        title="Failing ops",
        empty="No failures.",
        columns=(
            Column(name="backend", title="Backend", values=[side for side, _ in pairs], shown=Shown.TEXT),
            Column(name="what", title="Op or module", values=[what for _, what in pairs], shown=Shown.TEXT),
        ),
    )
