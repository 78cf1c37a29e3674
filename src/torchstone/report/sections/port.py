"""A port against the golden data: one row per tensor in order of execution, and a column in the module tree."""

import msgspec

from torchstone.record import codec
from torchstone.record.reference import WRONG, Comparison, GoldenData, Role, Status, TensorVerdict
from torchstone.report.reference_text import tolerance_text
from torchstone.report.section import (
    Card,
    Chart,
    Column,
    Line,
    Mark,
    ModuleColumn,
    ReportFolder,
    RollUp,
    SectionView,
    Series,
    Shown,
    Table,
    Tone,
)

NAME = "port"
FILE = "comparison.json"
GOLDEN_FILE = "golden_data.json"
_TABLE = "port.tensors"


def build(folder: ReportFolder) -> SectionView:
    """The view of one comparison."""
    found = codec.load(folder.path / FILE, Comparison)
    shown = [verdict for verdict in found.verdicts if verdict.status is not Status.NOT_GIVEN]
    return SectionView(
        name=NAME,
        title="Port",
        document=msgspec.to_builtins(found),
        cards=_cards(found),
        charts=_charts(shown),
        tables=(_table(shown),),
        module_columns=(_module_column(folder, found),),
        notes=(*_stale_notes(folder, found), *_notes(found)),
    )


def _cards(found: Comparison) -> tuple[Card, ...]:
    counts = ", ".join(f"{count} {status}" for status, count in found.counts.items())
    verdict = Card(
        title="Port",
        value="passed" if found.passed else "wrong" if found.first_wrong else "nothing compared",
        detail=counts,
        tone=Tone.GOOD if found.passed else Tone.BAD,
    )
    compared = sum(one.tolerance is not None for one in found.verdicts)
    judged = Card(title="Tolerance", value=f"{compared:,} tensors", detail=tolerance_text(found.verdicts))
    if found.passed:
        return verdict, judged
    if found.first_wrong is None:
        return verdict, judged
    where = found.first_wrong_module or "the model itself"
    return verdict, Card(title="First mismatch", value=where, detail=_first_wrong(found), tone=Tone.BAD), judged


def _first_wrong(found: Comparison) -> str:
    return ": ".join(part for part in (found.first_wrong, found.next_step) if part)


def _charts(shown: list[TensorVerdict]) -> tuple[Chart, ...]:
    """PCC over the tensors; none when no tensor has one."""
    with_pcc = [verdict for verdict in shown if verdict.errors is not None and verdict.errors.pcc is not None]
    if not with_pcc:
        return ()
    wanted = with_pcc[0].tolerance
    wrong = next((row for row, verdict in enumerate(shown) if verdict in with_pcc and verdict.status in WRONG), None)
    return (
        Chart(
            name="port.pcc",
            title="PCC in order of execution",
            table=_TABLE,
            series=(Series(column="pcc", title="PCC"),),
            x_title="tensor",
            hover=("name", "verdict"),
            marks=()
            if wrong is None
            else (Mark(row=wrong, series="pcc", text=f"first mismatch: {shown[wrong].name}"),),
            lines=() if wanted is None else (Line(value=wanted.pcc, text=f"at least {wanted.pcc:g}"),),
        ),
    )


def _table(shown: list[TensorVerdict]) -> Table:
    def numbers(name: str) -> list[float | None]:
        return [None if verdict.errors is None else getattr(verdict.errors, name) for verdict in shown]

    return Table(
        name=_TABLE,
        title="Tensors, in order of execution",
        empty="Nothing was compared.",
        columns=(
            Column(name="name", title="Tensor", values=[verdict.name for verdict in shown], shown=Shown.TEXT),
            Column(name="verdict", title="Verdict", values=[_word(verdict) for verdict in shown], shown=Shown.STATUS),
            Column(name="pcc", title="PCC", values=numbers("pcc"), shown=Shown.NUMBER),
            Column(name="cosine", title="Cosine", values=numbers("cosine"), shown=Shown.NUMBER),
            Column(name="max_abs", title="Max abs", values=numbers("max_abs"), shown=Shown.NUMBER),
            Column(name="max_rel", title="Max rel", values=numbers("max_rel"), shown=Shown.NUMBER),
            Column(name="relative_l2", title="Rel L2", values=numbers("relative_l2"), shown=Shown.NUMBER),
            Column(name="detail", title="Details", values=[_detail(verdict) for verdict in shown], shown=Shown.TEXT),
        ),
    )


def _word(verdict: TensorVerdict) -> str:
    if verdict.status in WRONG:
        return "failed"
    return "passed" if verdict.status is Status.PASSED else "not run"


def _detail(verdict: TensorVerdict) -> str:
    words = "" if verdict.status is Status.PASSED else verdict.status.value
    return ": ".join(part for part in (words, verdict.detail) if part)


def _module_column(folder: ReportFolder, found: Comparison) -> ModuleColumn:
    """The verdict of each module's outputs; wrong when one of them is."""
    words: dict[str, str] = {}
    for verdict in found.verdicts:
        path = verdict.module if verdict.role is Role.MODULE_OUTPUT else "" if verdict.role is Role.OUTPUT else None
        if path is None:
            continue
        word = _word(verdict)
        if words.get(path) != "failed":
            words[path] = word if word != "not run" else words.get(path, word)
    values = [words.get(module.path, "not run") for module in folder.trace.modules]
    return ModuleColumn(name="port", title="Port", values=values, shown=Shown.STATUS, roll_up=RollUp.WORST)


def _stale_notes(folder: ReportFolder, found: Comparison) -> tuple[str, ...]:
    """A note where the reference was regenerated after the comparison."""
    path = folder.path / GOLDEN_FILE
    if not path.is_file() or codec.load(path, GoldenData).created == found.golden_created:
        return ()
    return ("the golden data was regenerated after this comparison; run the comparison again",)


def _notes(found: Comparison) -> tuple[str, ...]:
    notes = list(found.notes)
    not_given = found.counts.get(Status.NOT_GIVEN.value, 0)
    if not_given:
        notes.append(f"{not_given} golden tensors are not in {found.candidate}, and were not compared")
    if found.unknown:
        count = len(found.unknown)
        notes.append(f"{count} tensors of {found.candidate} are not in the golden data: {found.unknown[0]}, ...")
    return tuple(notes)
