"""On Tenstorrent: which of the model's ops ttnn accepts on a board, what it refuses and why."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from torchstone.record import codec
from torchstone.record.mapping import ACCEPTED, MappedOp, MemoryPlan, ModelMapping
from torchstone.report.map_text import Group, fixable, missing, plan_sentence, share, variant_text
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
from torchstone.units import many, show_bytes, show_count

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
        charts=() if mapping.plan is None else _memory_charts(),
        tables=(
            *(() if mapping.plan is None else (_memory_table(mapping.plan), _module_memory_table(mapping.plan))),
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
            detail=f"of {many(mapping.calls, 'op call')}: {outcomes}; values not compared",
            tone=Tone.PLAIN if whole else Tone.WARNING,
        ),
        Card(
            title="FLOPs accepted",
            value=share(mapping.accepted_flops, mapping.flops),
            detail=f"of {show_count(mapping.flops)}; {mapping.version}",
        ),
        Card(title="Views that are free", value=share(free, views), detail=f"{free:,} of {many(views, 'call')}"),
        *(() if mapping.plan is None else _memory_cards(mapping.plan)),
    )


def _memory_cards(plan: MemoryPlan) -> tuple[Card, ...]:
    whole = plan.outcome == ACCEPTED
    if not whole:
        return (Card(title="Memory plan", value=plan.outcome, detail=plan_sentence(plan), tone=Tone.WARNING),)
    return (
        Card(
            title="Peak per DRAM bank",
            value=show_bytes(plan.peak_dram_bytes),
            detail=f"of {show_bytes(plan.dram_capacity_bytes)}, {plan.dram_banks} banks; at "
            f"{plan.peak_dram_op or 'the start'}",
        ),
        Card(
            title="Peak per L1 bank",
            value=show_bytes(plan.peak_l1_bytes),
            detail=f"of {show_bytes(plan.l1_capacity_bytes)}, with circular and dataflow buffers; "
            f"at {plan.peak_l1_op}"
            + (f"; {many(plan.unknown_ops, 'op')} could not be asked" if plan.unknown_ops else ""),
        ),
    )


def _memory_table(plan: MemoryPlan) -> Table:
    """While each op ran; an op that could not be asked has what stood in memory after it."""
    l1, dram = plan.l1_bank_bytes[1:], plan.dram_bank_bytes[1:]
    after = zip(plan.l1_op_bytes or l1, l1, strict=False)
    dram_after = zip(plan.dram_op_bytes or dram, dram, strict=False)
    return Table(
        name="tenstorrent.memory",
        columns=(
            Column(name="dram", title="DRAM", values=[b if a is None else a for a, b in dram_after], shown=Shown.BYTES),
            Column(name="l1", title="L1", values=[b if a is None else a for a, b in after], shown=Shown.BYTES),
            Column(name="tensors", title="L1, tensors alone", values=l1, shown=Shown.BYTES),
        ),
    )


def _memory_charts() -> tuple[Chart, ...]:
    titles = {"dram": "DRAM", "l1": "L1, with circular and dataflow buffers", "tensors": "L1, tensors alone"}

    def chart(name: str, title: str, columns: tuple[str, ...]) -> Chart:
        return Chart(
            name=f"tenstorrent.{name}",
            title=title,
            table="tenstorrent.memory",
            series=tuple(Series(column=one, title=titles[one], filled=one != "tensors") for one in columns),
            shown=Shown.BYTES,
            x_title="op",
            note="The mapped ops, executed one after the other on the board; the highest while each ran.",
        )

    return (
        chart("memory_l1", "L1 of one core over ops, bytes per bank", ("l1", "tensors")),
        chart("memory_dram", "DRAM over ops, bytes per bank", ("dram",)),
    )


def _module_memory_table(plan: MemoryPlan) -> Table:
    found = sorted(plan.modules, key=lambda one: -(one.l1_bytes or 0))
    return Table(
        name="tenstorrent.modules",
        title="Peak of each module, bytes per bank",
        empty="No module ran.",
        columns=(
            Column(name="path", title="Module", values=[one.path or "the model" for one in found], shown=Shown.TEXT),
            Column(name="l1", title="L1 with buffers", values=[one.l1_bytes for one in found], shown=Shown.BYTES),
            Column(name="dram", title="DRAM", values=[one.dram_bytes for one in found], shown=Shown.BYTES),
        ),
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
            Column(name="variant", title="Accepted with", values=[variant_text(one) for one in ones], shown=Shown.TEXT),
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
