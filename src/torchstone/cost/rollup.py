"""Costs of op calls summed by module, by op, by class and by depth; every sum is exact."""

from collections.abc import Iterable, Sequence

from torchstone.record.cost import GroupCost, Kind, ModuleCost, OpCost, SignatureCost
from torchstone.record.trace import Trace

_ROOT = 0


def module_costs(trace: Trace, costs: Sequence[SignatureCost]) -> tuple[ModuleCost, ...]:
    """Self costs by the innermost module running; with everything inside along the module tree.

    Ops outside any module call belong to the root, so that the self costs always add up to the root's whole cost.
    """
    own = _own(trace, costs)
    whole = [list(column) for column in own]
    parents = [module.parent for module in trace.modules]
    for column in whole:
        for module in range(len(parents) - 1, _ROOT, -1):  # modules stand in pre-order: children come later
            column[parents[module]] += column[module]
    return tuple(
        ModuleCost(
            path=module.path,
            class_name=module.class_name,
            flops=whole[0][index],
            self_flops=own[0][index],
            matmul_flops=whole[1][index],
            self_matmul_flops=own[1][index],
            bytes_read=whole[2][index],
            self_bytes_read=own[2][index],
            bytes_written=whole[3][index],
            self_bytes_written=own[3][index],
            ops=whole[4][index],
            unpriced_calls=whole[5][index],
        )
        for index, module in enumerate(trace.modules)
    )


def _own(trace: Trace, costs: Sequence[SignatureCost]) -> tuple[list[int], ...]:
    """Six columns by module: FLOPs, matmul FLOPs, bytes read, bytes written, op calls, calls without a price."""
    ran_in = (*trace.module_calls.modules, _ROOT)  # the last one is where ops outside any call belong
    parts = [
        (cost.flops, cost.matmul_flops, cost.bytes_read, cost.bytes_written, 1, int(cost.kind is Kind.UNPRICED))
        for cost in costs
    ]
    ran: list[list[int]] = [[] for _ in trace.modules]
    for call, signature in zip(trace.ops.module_calls, trace.ops.signature_of, strict=True):
        ran[ran_in[call]].append(signature)
    sums: dict[tuple[int, ...], tuple[int, ...]] = {(): (0,) * 6}  # equal modules run equal ops
    rows = []
    for signatures in map(tuple, ran):
        if signatures not in sums:
            sums[signatures] = tuple(map(sum, zip(*map(parts.__getitem__, signatures), strict=True)))
        rows.append(sums[signatures])
    return tuple(map(list, zip(*rows, strict=True)))


def op_costs(trace: Trace, costs: Sequence[SignatureCost]) -> tuple[OpCost, ...]:
    """One row for each op overload, most FLOPs first, then most bytes."""
    sums: dict[str, list[int]] = {}
    kinds: dict[str, Kind] = {}
    for signature, cost in zip(trace.ops.signatures, costs, strict=True):
        row = sums.setdefault(signature.op, [0] * 5)
        parts = (1, cost.flops, cost.matmul_flops, cost.bytes_read, cost.bytes_written)
        for column, part in enumerate(parts):
            row[column] += part * cost.calls
        kinds[signature.op] = cost.kind
    rows = [
        OpCost(op=op, kind=kinds[op], calls=row[0], flops=row[1], matmul_flops=row[2], bytes_read=row[3],
               bytes_written=row[4])
        for op, row in sums.items()
    ]  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-row.flops, -row.bytes_read - row.bytes_written, row.op)))


def class_costs(modules: Sequence[ModuleCost]) -> tuple[GroupCost, ...]:
    """Self costs by module class, most FLOPs first."""
    return _grouped(((module.class_name, module) for module in modules), by_cost=True)


def depth_costs(modules: Sequence[ModuleCost]) -> tuple[GroupCost, ...]:
    """Self costs by depth in the module tree; the root is at 0."""
    depths = [module.path.count(".") + 1 if module.path else 0 for module in modules]
    names = [str(depth) for depth in range(max(depths, default=0) + 1)]
    return _grouped(zip(map(names.__getitem__, depths), modules, strict=True), by_cost=False)


def _grouped(members: Iterable[tuple[str, ModuleCost]], *, by_cost: bool) -> tuple[GroupCost, ...]:
    sums: dict[str, list[int]] = {}
    for name, module in members:
        row = sums.get(name) or sums.setdefault(name, [0] * 5)
        row[0] += 1
        if module.self_flops or module.self_bytes_read or module.self_bytes_written:
            row[1] += module.self_flops
            row[2] += module.self_matmul_flops
            row[3] += module.self_bytes_read
            row[4] += module.self_bytes_written
    rows = [
        GroupCost(name=name, modules=row[0], self_flops=row[1], self_matmul_flops=row[2], self_bytes_read=row[3],
                  self_bytes_written=row[4])
        for name, row in sums.items()
    ]  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-row.self_flops, row.name) if by_cost else (int(row.name), row.name)))
