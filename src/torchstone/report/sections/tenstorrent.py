"""On Tenstorrent: which of the model's ops ttnn accepts on a board, what it refuses and why."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from torchstone.record import codec
from torchstone.record.mapping import ACCEPTED, MappedOp, MemoryPlan, ModelMapping
from torchstone.report.map_text import Group, fixable, missing, plan_sentence, share
from torchstone.report.section import (
    Banner,
    Card,
    Chart,
    Column,
    ModuleColumn,
    ReportFolder,
    RollUp,
    SectionView,
    Series,
    Shown,
    Table,
    Tone,
)
from torchstone.report.ttnn_text import NO_VALUES
from torchstone.units import show_bytes, show_count

NAME = "tenstorrent"
FILE = "mapping.json"


def build(folder: ReportFolder) -> SectionView:
    """The view of a mapping."""
    mapping = codec.load(folder.path / FILE, ModelMapping)
    outcome_of = {module.path: module.inclusive for module in mapping.modules}
    words = [outcome_of.get(module.path, "") for module in folder.trace.modules]
    column = ModuleColumn(
        name="tenstorrent", title=f"On {mapping.device}", values=words, shown=Shown.STATUS, roll_up=RollUp.WORST
    )
    return SectionView(
        name=NAME,
        title="On Tenstorrent",
        document=_document(mapping),
        banner=Banner(text=_sentence(mapping), tone=Tone.PLAIN),
        cards=_cards(mapping),
        charts=() if mapping.plan is None else (_memory_chart(),),
        tables=(
            *(() if mapping.plan is None else (_memory_table(mapping.plan),)),
            _groups_table("refused", "Not accepted, by cause", fixable(mapping), "ttnn accepts every mapped call."),
            _groups_table("unmapped", "No mapping, largest impact first", missing(mapping), "Every op has a mapping."),
            _ops_table(mapping),
            _calls_table(mapping),
        ),
        module_columns=(column,),
        notes=(NO_VALUES, *mapping.notes) if mapping.mock else mapping.notes,
    )


def _sentence(mapping: ModelMapping) -> str:
    calls, flops = share(mapping.accepted_calls, mapping.calls), share(mapping.accepted_flops, mapping.flops)
    kind = "mock " if mapping.mock else ""
    return (
        f"{calls} of the op calls and {flops} of the FLOPs map to ttnn and are accepted on a {kind}{mapping.device}; "
        "no value was compared"
    )


def _document(mapping: ModelMapping) -> dict[str, object]:
    numbers = {name: getattr(mapping, name) for name in ("calls", "mapped_calls", "accepted_calls", "flops")}
    return {
        "model": mapping.model,
        "device": mapping.device,
        "mock": mapping.mock,
        "version": mapping.version,
        **numbers,
        "accepted_flops": mapping.accepted_flops,
        "outcomes": mapping.outcomes,
        "kinds": mapping.kinds,
        "ops": [msgspec.to_builtins(one) for one in mapping.ops if one.outcome != ACCEPTED],
    }


def _cards(mapping: ModelMapping) -> tuple[Card, ...]:
    views, free = mapping.views
    whole = mapping.accepted_calls == mapping.calls
    outcomes = ", ".join(f"{count:,} {name}" for name, count in mapping.outcomes.items())
    return (
        Card(
            title=f"Accepted by ttnn on {mapping.device}",
            value=share(mapping.accepted_calls, mapping.calls),
            detail=f"of {mapping.calls:,} op calls: {outcomes}; values not compared",
            tone=Tone.PLAIN if whole else Tone.WARNING,
        ),
        Card(
            title="FLOPs accepted",
            value=share(mapping.accepted_flops, mapping.flops),
            detail=f"of {show_count(mapping.flops)}; {mapping.version}",
        ),
        Card(title="Views that are free", value=share(free, views), detail=f"{free:,} of {views:,} calls"),
        *(() if mapping.plan is None else (_memory_card(mapping.plan),)),
    )


def _memory_card(plan: MemoryPlan) -> Card:
    whole = plan.outcome == ACCEPTED
    return Card(
        title="Peak of tensors per DRAM bank",
        value=show_bytes(plan.peak_dram_bytes) if whole else plan.outcome,
        detail=plan_sentence(plan),
        tone=Tone.PLAIN if whole else Tone.WARNING,
    )


def _memory_table(plan: MemoryPlan) -> Table:
    return Table(
        name="tenstorrent.memory",
        columns=(
            Column(name="dram", title="DRAM", values=plan.dram_bank_bytes, shown=Shown.BYTES),
            Column(name="l1", title="L1", values=plan.l1_bank_bytes, shown=Shown.BYTES),
        ),
    )


def _memory_chart() -> Chart:
    return Chart(
        name="tenstorrent.memory",
        title="Tensors in memory while the mapped ops ran one after the other, bytes per bank",
        table="tenstorrent.memory",
        series=(Series(column="dram", title="DRAM", filled=True), Series(column="l1", title="L1")),
        shown=Shown.BYTES,
        x_title="op",
        note="Circular and dataflow buffers of the ops themselves are not counted.",
    )


def _groups_table(name: str, title: str, groups: Sequence[Group], empty: str) -> Table:
    ones = [group[0] for group in groups]
    return Table(
        name=f"tenstorrent.{name}",
        title=title,
        empty=empty,
        columns=(
            Column(name="op", title="Operator", values=[one.op for one in ones], shown=Shown.OP),
            Column(name="outcome", title="Outcome", values=[one.outcome for one in ones], shown=Shown.STATUS),
            Column(name="why", title="Reason", values=[one.detail or "no rule" for one in ones], shown=Shown.TEXT),
            Column(name="variant", title="Accepted with", values=[one.variant for one in ones], shown=Shown.TEXT),
            Column(name="configurations", title="Configurations", values=[g[1] for g in groups], shown=Shown.COUNT),
            Column(name="calls", title="Calls", values=[group[2] for group in groups], shown=Shown.COUNT),
            Column(name="flops", title="FLOPs", values=[group[3] for group in groups], shown=Shown.COUNT),
            Column(name="arguments", title="Example", values=[one.arguments for one in ones], shown=Shown.TEXT),
            Column(name="place", title="Check in ttnn", values=[one.place for one in ones], shown=Shown.TEXT),
            Column(name="text", title="All that ttnn said", values=[one.text for one in ones], shown=Shown.HIDDEN),
        ),
    )


def _ops_table(mapping: ModelMapping) -> Table:
    rows: dict[tuple[str, str, tuple[str, ...], str], list[MappedOp]] = {}
    for one in mapping.ops:
        rows.setdefault((one.op, one.kind, one.library_calls, one.outcome), []).append(one)
    found = sorted(rows.items(), key=lambda item: (-sum(one.calls for one in item[1]), item[0]))
    return Table(
        name="tenstorrent.ops",
        title="Mapping of each operator",
        columns=(
            Column(name="op", title="Operator", values=[key[0] for key, _ in found], shown=Shown.OP),
            Column(name="kind", title="Becomes", values=[key[1] for key, _ in found], shown=Shown.TEXT),
            Column(name="library", title="ttnn calls", values=[_short(key[2]) for key, _ in found], shown=Shown.TEXT),
            Column(name="outcome", title="Outcome", values=[key[3] for key, _ in found], shown=Shown.STATUS),
            Column(
                name="calls", title="Calls", values=[sum(o.calls for o in each) for _, each in found], shown=Shown.COUNT
            ),
            Column(
                name="flops", title="FLOPs", values=[sum(o.flops for o in each) for _, each in found], shown=Shown.COUNT
            ),
        ),
    )


def _short(calls: tuple[str, ...]) -> str:
    counted = Counter(calls)
    return ", ".join(name if count == 1 else f"{name} x{count}" for name, count in counted.items())


def _calls_table(mapping: ModelMapping) -> Table:
    counted: Counter[str] = Counter()
    for one in mapping.ops:
        for call in one.library_calls:
            counted[call] += one.calls
    found = counted.most_common()
    return Table(
        name="tenstorrent.library",
        title="ttnn ops that the model needs",
        columns=(
            Column(name="name", title="ttnn op", values=[name for name, _ in found], shown=Shown.TEXT),
            Column(name="calls", title="Calls", values=[count for _, count in found], shown=Shown.COUNT),
        ),
    )
