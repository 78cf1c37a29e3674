"""Costs of op calls summed by module, by op, by class and by depth; every sum is exact."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from torchstone.record.base import Record
from torchstone.record.cost import GroupCost, Kind, ModuleCost, OpCost, SignatureCost
from torchstone.record.trace import Trace

_ROOT = 0
_OUTSIDE = -1  # stands for a call: ops that ran outside any
_NO_COST = (0,) * 6


class OwnCosts(Record, frozen=True, kw_only=True):
    """What each module costs by its own ops; equal modules share a row."""

    rows: list[tuple[int, ...]]  # FLOPs, matmul FLOPs, bytes read, bytes written, op calls, calls without a price
    row_of: list[int]  # by module

    def columns(self) -> list[list[int]]:
        """One column for each part of a row, by module."""
        return [list(map(values.__getitem__, self.row_of)) for values in zip(*self.rows, strict=True)]


def own_costs(trace: Trace, costs: Sequence[SignatureCost]) -> OwnCosts:
    """Costs by the innermost module running; what a recorded module call costs, all copies of it cost.

    Ops outside any module call belong to the root, so that the costs of all modules always add up to the total.
    """
    of_call = _own_costs_of_calls(trace, costs)
    calls: list[tuple[int, ...]] = [()] * len(trace.modules)  # by module: the recorded calls that its calls equal
    origins = trace.call_origins
    for module, row in zip(origins.modules, origins.rows, strict=True):
        calls[module] += (row,)
    if trace.modules:
        calls[_ROOT] += (_OUTSIDE,)
    numbers: dict[tuple[int, ...], int] = {}
    rows: list[tuple[int, ...]] = []
    for key in dict.fromkeys(calls):
        numbers[key] = len(rows)
        found = [of_call.get(row, _NO_COST) for row in key]
        rows.append(tuple(found[0]) if len(found) == 1 else tuple(map(sum, zip(_NO_COST, *found, strict=True))))
    return OwnCosts(rows=rows, row_of=[numbers[key] for key in calls])


def _own_costs_of_calls(trace: Trace, costs: Sequence[SignatureCost]) -> dict[int, list[int]]:
    """What each recorded module call costs by its own ops."""
    parts = [
        (cost.flops, cost.matmul_flops, cost.bytes_read, cost.bytes_written, 1, int(cost.kind is Kind.UNPRICED))
        for cost in costs
    ]
    return {
        row: list(parts[called[0][0]])
        if len(called) == 1 and called[0][1] == 1  # as in most layers of a net
        else [sum(parts[signature][place] * count for signature, count in called) for place in range(len(_NO_COST))]
        for row, called in trace.own_signatures.items()
    }


def module_costs(trace: Trace, own: OwnCosts) -> tuple[ModuleCost, ...]:
    """Own costs, and those with everything inside along the module tree."""
    columns = own.columns()
    whole = [column.copy() for column in columns]
    upwards = [(number, module.parent) for number, module in enumerate(trace.modules) if number > _ROOT][::-1]
    for column in whole:
        if any(column):
            for module, parent in upwards:
                column[parent] += column[module]
    flops, matmul, read, written, *_ = columns
    return tuple(
        [
            ModuleCost(
                path=module.path,
                class_name=module.class_name,
                flops=all_flops,
                self_flops=own_flops,
                matmul_flops=all_matmul,
                self_matmul_flops=own_matmul,
                bytes_read=all_read,
                self_bytes_read=own_read,
                bytes_written=all_written,
                self_bytes_written=own_written,
                ops=ops,
                unpriced_calls=unpriced,
            )
            for (
                module, own_flops, own_matmul, own_read, own_written,
                all_flops, all_matmul, all_read, all_written, ops, unpriced,
            ) in zip(trace.modules, flops, matmul, read, written, *whole, strict=True)
        ]
    )  # fmt: skip


def op_costs(trace: Trace, costs: Sequence[SignatureCost]) -> tuple[OpCost, ...]:
    """One row for each op overload, most FLOPs first, then most bytes."""
    sums: dict[str, list[int]] = {}
    kinds: dict[str, Kind] = {}
    for signature, cost in zip(trace.recorded_ops.signatures, costs, strict=True):
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


def class_costs(trace: Trace, own: OwnCosts) -> tuple[GroupCost, ...]:
    """Own costs by module class, most FLOPs first."""
    rows = _grouped([module.class_name for module in trace.modules], own)
    return tuple(sorted(rows, key=lambda row: (-row.self_flops, row.name)))


def depth_costs(trace: Trace, own: OwnCosts) -> tuple[GroupCost, ...]:
    """Own costs by depth in the module tree; the root is at 0."""
    depths = [0] * len(trace.modules)
    for number, module in enumerate(trace.modules):
        if number > _ROOT:
            depths[number] = depths[module.parent] + 1
    return tuple(sorted(_grouped(depths, own), key=lambda row: int(row.name)))


def _grouped(names: Iterable[str | int], own: OwnCosts) -> list[GroupCost]:
    sums: defaultdict[str | int, list[int]] = defaultdict(lambda: [0] * 5)
    for (name, number), modules in Counter(zip(names, own.row_of, strict=True)).items():
        for place, part in enumerate((1, *own.rows[number][:4])):
            sums[name][place] += part * modules
    return [
        GroupCost(name=str(name), modules=row[0], self_flops=row[1], self_matmul_flops=row[2], self_bytes_read=row[3],
                  self_bytes_written=row[4])
        for name, row in sums.items()
    ]  # fmt: skip
