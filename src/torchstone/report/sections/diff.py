"""Two folders of results side by side: totals, the module tree, ops and golden data."""

from collections.abc import Sequence

import msgspec

from torchstone.record import codec
from torchstone.record.diff import Change, FolderDiff, ModuleDiff
from torchstone.report.diff_text import headline, ratio_text, value_text
from torchstone.report.section import Banner, Card, Column, ReportFolder, SectionView, Shown, Table, Tone

NAME = "diff"
FILE = "diff.json"
_CARDS = ("FLOPs", "parameter bytes", "peak memory, ideal lifetimes", "predicted time", "fits")


def build(folder: ReportFolder) -> SectionView:
    """The view of a diff."""
    found = codec.load(folder.path / FILE, FolderDiff)
    return SectionView(
        name=NAME,
        title="Differences",
        document=msgspec.to_builtins(found),
        banner=Banner(text=headline(found), tone=Tone.PLAIN if found.differs else Tone.GOOD),
        cards=tuple(_cards(found)),
        tables=(_totals(found), _modules(found), _ops(found), _tensors(found)),
        notes=found.notes,
    )


def _cards(found: FolderDiff) -> list[Card]:
    cards = []
    for one in found.quantities:
        if one.name in _CARDS and (one.before is not None or one.after is not None):
            same = one.change is Change.SAME
            cards.append(
                Card(
                    title=one.name[:1].upper() + one.name[1:],
                    value=value_text(one, 1) if same else ratio_text(one),
                    detail="same" if same else f"{value_text(one, 0)}, now {value_text(one, 1)}",
                )
            )
    for title, change in (("Check", found.check_change), ("Device memory", found.memory_change)):
        if change:
            cards.append(Card(title=title, value="changed", detail=change))
    return cards


def _text(name: str, title: str, values: Sequence[str], shown: Shown = Shown.TEXT) -> Column:
    return Column(name=name, title=title, values=values, shown=shown)


def _totals(found: FolderDiff) -> Table:
    rows = found.quantities
    return Table(
        name="diff.totals", title="Totals",
        columns=(
            _text("name", "Quantity", [one.name for one in rows]),
            _text("before", found.sides[0], [value_text(one, 0) for one in rows]),
            _text("after", found.sides[1], [value_text(one, 1) for one in rows]),
            _text("change", "Change", [ratio_text(one) for one in rows]),
        ),
    )  # fmt: skip


def _modules(found: FolderDiff) -> Table:
    rows = [one for one in found.modules if one.change is not Change.SAME]
    columns = [
        _text("module", "Module", [one.path or "(the model)" for one in rows]),
        _text("change", "Change", [one.change.value for one in rows]),
    ]
    for side, name in enumerate(("before", "after")):
        columns += [
            _text(f"class_{name}", f"Class {name}", [_class(one, side) for one in rows]),
            _text(f"shapes_{name}", f"Shapes {name}", [one.shapes[side] or "" for one in rows]),
            _number(f"parameters_{name}", f"Parameters {name}", [one.parameters[side] for one in rows], Shown.COUNT),
            _number(f"flops_{name}", f"FLOPs {name}", [one.flops[side] for one in rows], Shown.COUNT),
            _number(f"moved_{name}", f"Bytes {name}", [one.moved_bytes[side] for one in rows], Shown.BYTES),
        ]
    return Table(
        name="diff.modules", title="Modules that differ", columns=tuple(columns),
        empty="Every module has the same class, shapes, parameters and costs.",
    )  # fmt: skip


def _class(module: ModuleDiff, side: int) -> str:
    return (module.classes[side] or "").rpartition(".")[2]


def _number(name: str, title: str, values: Sequence[int | None], shown: Shown) -> Column:
    return Column(name=name, title=title, values=values, shown=shown)


def _ops(found: FolderDiff) -> Table:
    rows = found.ops
    return Table(
        name="diff.ops", title="Ops that differ", empty="Every op is called as often, with the same FLOPs.",
        columns=(
            _text("op", "Op", [one.op for one in rows]),
            _number("calls_before", "Calls before", [one.calls[0] for one in rows], Shown.COUNT),
            _number("calls_after", "Calls after", [one.calls[1] for one in rows], Shown.COUNT),
            _number("flops_before", "FLOPs before", [one.flops[0] for one in rows], Shown.COUNT),
            _number("flops_after", "FLOPs after", [one.flops[1] for one in rows], Shown.COUNT),
        ),
    )  # fmt: skip


def _tensors(found: FolderDiff) -> Table:
    rows = found.tensors
    return Table(
        name="diff.tensors", title="Golden data that differs",
        empty="The same tensors and weights." if "golden data" in found.compared else "Not on both sides.",
        columns=(
            _text("name", "Tensor", [one.name for one in rows]),
            _text("kind", "Kind", [one.kind for one in rows]),
            _text("change", "Change", [one.change.value for one in rows]),
            _text("verdict", "Verdict on values", [one.verdict or "not compared" for one in rows]),
            Column(
                name="noise", title="Times the noise", values=[one.noise_multiple for one in rows], shown=Shown.NUMBER
            ),
            _text("detail", "Detail", [one.detail for one in rows]),
        ),
    )  # fmt: skip
