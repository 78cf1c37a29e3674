"""Terminal output of `torchstone map`: shares of calls and FLOPs, what is refused and why, ops without a mapping."""

from torchstone.record.mapping import ACCEPTED, UNMAPPED, MappedOp, MemoryPlan, ModelMapping
from torchstone.report.text import Paint, aligned, plain
from torchstone.report.ttnn_text import NO_VALUES
from torchstone.units import many, show_bytes, show_count

_CUT = 90


def share(part: int, whole: int) -> str:
    """A share in percent; a dash where there is no whole."""
    return f"{100 * part / whole:.2f} %" if whole else "-"


def mapping_text(mapping: ModelMapping, *, limit: int = 15, paint: Paint = plain) -> str:
    """The verdict first, then what to fix, largest impact first."""
    views, free = mapping.views
    flops = show_count(mapping.flops)
    where = f"{'mock ' if mapping.mock else ''}{mapping.device}, {mapping.version}"
    lines = [
        f"{mapping.model} on {where}",
        f"{share(mapping.accepted_calls, mapping.calls)} of {many(mapping.calls, 'op call')} and "
        f"{share(mapping.accepted_flops, mapping.flops)} of {flops} FLOPs map to ttnn and are accepted",
        "calls: " + ", ".join(f"{count:,} {name}" for name, count in mapping.outcomes.items()),
        "become: " + ", ".join(f"{count:,} {name}" for name, count in mapping.kinds.items()),
    ]
    if views:
        lines.append(f"views: {free:,} of {many(views, 'call')} build no program; the others move data on the device")
    if mapping.plan is not None:
        lines.append(plan_sentence(mapping.plan))
    if mapping.skeletons:
        written = sum(not one.startswith("none") for one in mapping.skeletons.values())
        lines.append(
            f"skeletons: {written:,} of {many(len(mapping.skeletons), 'unique module')} as code that runs on the device"
        )
    for title, groups in (("Not accepted, largest impact first", fixable(mapping)), ("No mapping", missing(mapping))):
        if groups:
            lines += ["", title, _table(groups[:limit], paint)]
            lines += [f"{len(groups) - limit} more; --json has all"] if len(groups) > limit else []
    return "\n".join([*lines, "", *(f"note: {note}" for note in mapping.notes), NO_VALUES])


def plan_sentence(plan: MemoryPlan) -> str:
    """The peaks of both memories and their ops, or the op that the model ended at."""
    dram = f"{show_bytes(plan.peak_dram_bytes)}{_of(plan.dram_capacity_bytes)} per DRAM bank"
    l1 = f"{show_bytes(plan.peak_l1_bytes)}{_of(plan.l1_capacity_bytes)} per L1 bank with circular and dataflow buffers"
    unknown = f"; {many(plan.unknown_ops, 'op')} could not be asked for their own buffers" if plan.unknown_ops else ""
    if plan.outcome == ACCEPTED:
        where = f" (at {plan.peak_dram_op})" if plan.peak_dram_op else ""
        place = f" (at {plan.peak_l1_op})" if plan.peak_l1_op else ""
        return f"memory: at most {dram}{where} and {l1}{place}{unknown}"
    if plan.failed_step is None:
        return f"memory: the weights and inputs alone end with {plan.outcome}: {plan.detail}"
    module = f" in {plan.failed_module}" if plan.failed_module else ""
    return (
        f"memory: executing op by op ended at op {plan.failed_step}, {plan.failed_op}{module}, with {plan.outcome}: "
        f"{plan.detail}; until then at most {dram} and {l1}{unknown}"
    )


def _of(capacity_bytes: int) -> str:
    return f" of {show_bytes(capacity_bytes)}" if capacity_bytes else ""


Group = tuple[MappedOp, int, int, int]  # an example, configurations, calls, flops


def fixable(mapping: ModelMapping) -> list[Group]:
    """Configurations with a mapping that is not accepted, by op and cause."""
    return _groups([one for one in mapping.ops if one.outcome not in (ACCEPTED, UNMAPPED)])


def missing(mapping: ModelMapping) -> list[Group]:
    """Configurations without a mapping, by op and reason."""
    return _groups([one for one in mapping.ops if one.outcome == UNMAPPED])


def _groups(ops: list[MappedOp]) -> list[Group]:
    found: dict[tuple[str, str, str], list[MappedOp]] = {}
    for one in ops:
        found.setdefault((one.op, one.outcome, one.cause), []).append(one)
    groups = [(each[0], len(each), sum(x.calls for x in each), sum(x.flops for x in each)) for each in found.values()]
    return sorted(groups, key=lambda group: (-group[3], -group[2], group[0].op))


def variant_text(one: MappedOp) -> str:
    """The layout that is accepted instead, and the L1 that it needs; "" where none was found."""
    if not one.variant or one.variant_l1_bytes is None:
        return one.variant
    return f"{one.variant} ({show_bytes(one.variant_l1_bytes)} of L1 per core)"


def _table(groups: list[Group], paint: Paint) -> str:
    rows = [["calls", "FLOPs", "op", "outcome", "why", "accepted with"]]
    for one, _, calls, flops in groups:
        why = one.detail or "no rule: add one with --rules"
        cut = why if len(why) <= _CUT else f"{why[: _CUT - 3]}..."
        rows.append([f"{calls:,}", show_count(flops), one.op, one.outcome, cut, variant_text(one) or "-"])
    return aligned(rows, right=(0, 1), paint=paint)
