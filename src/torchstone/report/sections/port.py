"""A port against the golden data: one row per tensor in order of execution, and a column in the module tree."""

from math import log10

import msgspec

from torchstone.numerics.profiles import rule_in_words
from torchstone.record import codec
from torchstone.record.reference import (
    WRONG,
    Comparison,
    GoldenData,
    LayerError,
    Role,
    SetupCheck,
    Status,
    TensorVerdict,
)
from torchstone.report.reference_text import judged_by_text
from torchstone.report.section import (
    Banner,
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
    Shape,
    Shown,
    Table,
    Tone,
)
from torchstone.units import many

NAME = "port"
FILE = "comparison.json"
GOLDEN_FILE = "golden_data.json"
_TABLE = "port.tensors"
_LAYERS = "port.layers"
_SETUP = "port.setup"
_SMALLEST = 1e-12  # where a logarithm begins: an error of 0 is drawn here


def build(folder: ReportFolder) -> SectionView:
    """The view of one comparison."""
    found = codec.load(folder.path / FILE, Comparison)
    shown = [verdict for verdict in found.verdicts if verdict.status is not Status.NOT_GIVEN]
    return SectionView(
        name=NAME,
        title="Port",
        document=msgspec.to_builtins(found),
        banner=_banner(found),
        cards=_cards(found),
        charts=(*_depth_chart(found), *_charts(shown)),
        tables=(*_setup_table(found.setup), *_layer_table(found.layers), _table(shown)),
        module_columns=(_module_column(folder, found),),
        notes=(*_stale_notes(folder, found), *_notes(found), _rule(found)),
    )


def _banner(found: Comparison) -> Banner:
    """The verdict in one sentence, with what to look at next."""
    if found.passed:
        tone = Tone.WARNING if found.suspicious or found.incomplete else Tone.GOOD
        more = f"; {many(len(found.suspicious), 'tensor is', 'tensors are')} suspicious" if found.suspicious else ""
        part = f", as far as it was given: {found.incomplete}" if found.incomplete else ""
        return Banner(text=f"The port passes{part}{more}.", tone=tone)
    if found.first_wrong is None:
        return Banner(text=f"The port does not pass: {found.incomplete or 'no result was compared'}.", tone=Tone.BAD)
    where = found.first_wrong_module or "the model's own output"
    step = f" Next: {found.next_step}." if found.next_step else ""
    return Banner(text=f"The port is wrong, first at {where}.{step}", tone=Tone.BAD)


def _cards(found: Comparison) -> tuple[Card, ...]:
    counts = ", ".join(f"{count} {status}" for status, count in found.counts.items())
    verdict = Card(
        title="Port",
        value="passed" if found.passed else "wrong" if found.first_wrong else _not_passed(found),
        detail="; ".join(filter(None, (counts, found.incomplete))),
        tone=Tone.GOOD if found.passed else Tone.BAD,
    )
    compared = sum(one.errors is not None for one in found.verdicts)
    judged = Card(title="Judged", value=many(compared, "tensor"), detail=judged_by_text(found.verdicts))
    cards = [*_setup_card(found.setup), verdict]
    if found.first_wrong is not None:
        where = found.first_wrong_module or "the model itself"
        cards.append(Card(title="First mismatch", value=where, detail=_first_wrong(found), tone=Tone.BAD))
    if found.spread:
        worst = max(found.layers, key=lambda one: one.error or 0.0)
        cards.append(Card(title="Largest error of a module", value=f"{worst.error or 0.0:.2g}", detail=worst.module))
    layouts = [one for one in _with_layout(found) if one.status not in WRONG]
    if layouts:
        detail = f"match after a change of layout, first {layouts[0].name}: {', '.join(layouts[0].layout)}"
        cards.append(Card(title="Layouts", value=many(len(layouts), "tensor"), detail=detail))
    return (*cards, judged)


def _with_layout(found: Comparison) -> list[TensorVerdict]:
    """The tensors whose layout was undone."""
    return [one for one in found.verdicts if one.layout]


def _not_passed(found: Comparison) -> str:
    return "incomplete" if found.incomplete else "nothing compared"


def _setup_card(setup: tuple[SetupCheck, ...]) -> tuple[Card, ...]:
    """First of all cards: a difference in the set-up explains the rest."""
    if not any(one.same is not None for one in setup):
        return ()
    decisive = [one for one in setup if one.same is False and one.decisive]
    differs = [one for one in setup if one.same is False]
    if decisive:
        text = "; ".join(one.detail for one in decisive)
        return (Card(title="Set-up", value=f"other {decisive[0].aspect}", detail=text, tone=Tone.BAD),)
    detail = "; ".join(f"{one.aspect}: {one.detail}" for one in differs)
    compared = ", ".join(one.aspect for one in setup if one.same)
    if differs:
        return (Card(title="Set-up", value="differs", detail=detail, tone=Tone.WARNING),)
    return (Card(title="Set-up", value="same", detail=compared, tone=Tone.GOOD),)


def _setup_table(setup: tuple[SetupCheck, ...]) -> tuple[Table, ...]:
    if not setup:
        return ()
    words = {True: "same", False: "differs", None: "unknown"}
    return (
        Table(
            name=_SETUP,
            title="Set-up of the port beside that of the reference",
            columns=(
                Column(name="aspect", title="Aspect", values=[one.aspect for one in setup], shown=Shown.TEXT),
                Column(name="same", title="Result", values=[words[one.same] for one in setup], shown=Shown.TEXT),
                Column(name="detail", title="Details", values=[one.detail for one in setup], shown=Shown.TEXT),
            ),
        ),
    )


def _layer_table(layers: tuple[LayerError, ...]) -> tuple[Table, ...]:
    if not layers:
        return ()
    errors, inherited = [one.error for one in layers], [one.inherited for one in layers]
    words = ["failed" if one.state == "wrong" else one.state for one in layers]
    return (
        Table(
            name=_LAYERS,
            title="Modules, in order of execution: relative L2 error of their inputs and outputs",
            columns=(
                Column(name="module", title="Module", values=[one.module for one in layers], shown=Shown.TEXT),
                Column(name="state", title="Verdict", values=words, shown=Shown.STATUS),
                Column(name="inherited", title="Inherited", values=inherited, shown=Shown.NUMBER),
                Column(name="error", title="Error", values=errors, shown=Shown.NUMBER),
                Column(name="added", title="Added", values=[one.added for one in layers], shown=Shown.NUMBER),
                Column(name="log_error", values=list(map(_logarithm, errors))),
                Column(name="log_inherited", values=list(map(_logarithm, inherited))),
            ),
        ),
    )


def _logarithm(error: float | None) -> float | None:
    return None if error is None else round(log10(max(error, _SMALLEST)), 3)


def _depth_chart(found: Comparison) -> tuple[Chart, ...]:
    """The error over depth, where at least two modules have one."""
    layers = found.layers
    if sum(one.error is not None for one in layers) < 2:  # noqa: PLR2004 - a line needs two points
        return ()
    wrong = next((row for row, one in enumerate(layers) if one.state == "wrong" and one.error is not None), None)
    marks = () if wrong is None else (Mark(row=wrong, series="log_error", text=f"first: {layers[wrong].module}"),)
    known = any(one.inherited is not None for one in layers)
    inherited = (Series(column="log_inherited", title="error of its inputs"),) if known else ()
    return (
        Chart(
            name="port.depth",
            title="Error over depth: log10 of the relative L2 error",
            table=_LAYERS,
            series=(Series(column="log_error", title="error of its outputs"), *inherited),
            shape=Shape.LINE,
            x_title="module",
            hover=("module", "state", "error", "inherited"),
            marks=marks,
            note=found.spread,
        ),
    )


def _rule(found: Comparison) -> str:
    asked = any(one.tolerance is not None and not one.tolerance.exact for one in found.verdicts)
    return rule_in_words(asked=asked)


def _first_wrong(found: Comparison) -> str:
    first = next((one for one in found.verdicts if one.name == found.first_wrong), None)
    return "" if first is None else f"{first.name}: {first.status.value}; {first.detail}".rstrip("; ")


def _charts(shown: list[TensorVerdict]) -> tuple[Chart, ...]:
    """PCC over the tensors; none when no tensor has one."""
    with_pcc = [verdict for verdict in shown if verdict.errors is not None and verdict.errors.pcc is not None]
    if not with_pcc:
        return ()
    wanted = next((one.tolerance for one in with_pcc if one.tolerance is not None), None)
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
            Column(
                name="noise_multiple",
                title="Times the noise",
                values=[one.noise_multiple for one in shown],
                shown=Shown.NUMBER,
            ),
            Column(name="pcc", title="PCC", values=numbers("pcc"), shown=Shown.NUMBER),
            Column(name="max_ulp", title="Max ULP", values=numbers("max_ulp"), shown=Shown.NUMBER),
            Column(name="cosine", title="Cosine", values=numbers("cosine"), shown=Shown.NUMBER),
            Column(name="max_abs", title="Max abs", values=numbers("max_abs"), shown=Shown.NUMBER),
            Column(name="max_rel", title="Max rel", values=numbers("max_rel"), shown=Shown.NUMBER),
            Column(name="relative_l2", title="Rel L2", values=numbers("relative_l2"), shown=Shown.NUMBER),
            Column(
                name="port_name", title="Name in the port", values=[one.port_name for one in shown], shown=Shown.TEXT
            ),
            Column(name="matched_by", title="Matched by", values=[_matched(one) for one in shown], shown=Shown.TEXT),
            Column(name="detail", title="Details", values=[_detail(verdict) for verdict in shown], shown=Shown.TEXT),
        ),
    )


def _word(verdict: TensorVerdict) -> str:
    if verdict.status in WRONG:
        return "failed"
    compared = verdict.status in (Status.PASSED, Status.SUSPICIOUS)
    return verdict.status.value if compared else "not run"


def _matched(verdict: TensorVerdict) -> str:
    return "" if verdict.matched_by is None else verdict.matched_by.value


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
        notes.append(
            f"{many(not_given, 'golden tensor is', 'golden tensors are')} not in "
            f"{found.candidate}, and were not compared"
        )
    if found.unknown:
        count = len(found.unknown)
        notes.append(f"not in the golden data: {many(count, 'tensor')} of {found.candidate} ({found.unknown[0]}, ...)")
    return tuple(notes)
