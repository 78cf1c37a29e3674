"""Why another counter says something else: op by op where it tells them apart, by what is known of it otherwise."""

from collections.abc import Mapping
from itertools import combinations

from torchstone.record.cost import CostTable, Difference

_MOST_OPS = 10  # of which every choice is tried
_OURS_TO_THEIRS = {  # names that differ between dispatch and older traces
    "mm": "linear matmul mm",
    "addmm": "linear addmm",
    "bmm": "bmm matmul einsum",
    "convolution": "conv _convolution convolution",
    "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "native_layer_norm": "layer_norm",
    "native_batch_norm": "batch_norm",
    "native_group_norm": "group_norm",
}


def differences(table: CostTable, by_op: Mapping[str, int], skipped: Mapping[str, int]) -> tuple[Difference, ...]:
    """Every op of ours with another count over there, and every op of theirs that we count as no matmul."""
    found = []
    theirs_of = {_packet(op): flops for op, flops in by_op.items()}
    ours_of = _matmul_flops(table)
    for group in _groups(ours_of, theirs_of):
        ours = sum(ours_of.get(name, 0) for name in group)
        theirs = sum(theirs_of.get(name, 0) for name in group)
        if ours != theirs:
            name = " + ".join(sorted(one for one in group if ours_of.get(one) or theirs_of.get(one)))
            found.append(Difference(op=name, ours=ours, theirs=theirs, reason=_reason(ours, theirs, group, skipped)))
    return tuple(sorted(found, key=lambda one: -abs(one.ours - one.theirs)))


def _matmul_flops(table: CostTable) -> dict[str, int]:
    """Each op's matmul FLOPs, a multiply-add as two whatever the table counts."""
    flops: dict[str, int] = {}
    for row in table.ops:
        packet = _packet(row.op)
        flops[packet] = flops.get(packet, 0) + row.matmul_flops * 2 // table.conventions.multiply_add
    return flops


def inferred(table: CostTable, total: int) -> str:
    """What the total of a counter that tells no ops looks like: our matmuls but some, and a little other arithmetic."""
    flops = {name: count for name, count in _matmul_flops(table).items() if count}
    ours, other = sum(flops.values()), table.totals.flops - table.totals.matmul_flops
    names = sorted(flops, key=lambda name: -flops[name])[:_MOST_OPS]
    best: tuple[int, tuple[str, ...]] | None = None
    for count in range(max(len(names), 1)):  # one op at least is counted
        for left_out in combinations(names, count):
            over = total - ours + sum(flops[name] for name in left_out)
            if 0 <= over <= other and (best is None or over < best[0]):
                best = (over, left_out)
    if best is None:
        return "tells no ops, and no choice of ops gives its total: it counts by layers, or otherwise"
    over, left_out = best
    but = f" but {' and '.join(f'{name} ({flops[name]:,})' for name in left_out)}" if left_out else ""
    more = f", and {over:,} FLOPs of other arithmetic" if over else ""
    return f"tells no ops; its total equals that of all matmuls{but}{more}"


def _groups(ours: Mapping[str, int], theirs: Mapping[str, int]) -> list[set[str]]:
    """Ops that may be one another's other name, taken together."""
    groups: list[set[str]] = []
    for name in dict.fromkeys((*ours, *theirs)):
        if not ours.get(name) and not theirs.get(name):
            continue
        names = {name, *_OURS_TO_THEIRS.get(name, "").split()}
        touching = [group for group in groups if group & names]
        for group in touching:
            groups.remove(group)
            names |= group
        groups.append(names)
    return groups


def _reason(ours: int, theirs: int, group: set[str], skipped: Mapping[str, int]) -> str:
    told = [name for name in skipped if _packet(name) in group]
    if theirs == 0 and told:
        return "not counted, and it says so"
    if theirs == 0:
        return "not counted, and it does not say so"
    if ours == 0:
        return "counted there as arithmetic of another kind than matmul"
    if ours == 2 * theirs:
        return "half: it counts multiply-adds"
    if theirs == 2 * ours:
        return "double"
    return "counted otherwise"


def _packet(op: str) -> str:
    """aten.mm.default, aten::mm and mm are the same op."""
    name = op.replace("::", ".").removeprefix("aten.")
    return name.split(".")[0]
