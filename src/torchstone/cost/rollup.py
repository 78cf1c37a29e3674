"""Costs of op calls summed by module, by op, by class and by depth; every sum is exact."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torchstone.cost.repeats import LAST, MIDDLE, NOTHING_LEFT_OUT, Repeats
from torchstone.record.cost import GroupCost, Kind, ModuleCost, OpCost, SignatureCost
from torchstone.record.trace import Trace

_ROOT = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCosts:
    """What each module costs by its own ops; equal modules share a row."""

    rows: list[tuple[int, ...]]  # FLOPs, matmul FLOPs, bytes read, bytes written, op calls, calls without a price
    row_of: list[int]  # by module

    def columns(self) -> list[list[int]]:
        """One column for each part of a row, by module."""
        return [list(map(values.__getitem__, self.row_of)) for values in zip(*self.rows, strict=True)]


def own_costs(trace: Trace, costs: Sequence[SignatureCost], repeats: Repeats = NOTHING_LEFT_OUT) -> OwnCosts:
    """Costs by the innermost module running; a shortened trace gives those of the whole one.

    Ops outside any module call belong to the root, so that the costs of all modules always add up to the total.
    """
    parts = [
        (cost.flops, cost.matmul_flops, cost.bytes_read, cost.bytes_written, 1, int(cost.kind is Kind.UNPRICED))
        for cost in costs
    ]
    numbers: dict[tuple[int, ...], int] = {}  # equal modules run equal ops
    rows: list[tuple[int, ...]] = []
    row_of = []
    for signatures in map(tuple, _ran_in_modules(trace, repeats)):
        if signatures not in numbers:
            numbers[signatures] = len(rows)
            rows.append(tuple(map(sum, zip((0,) * 6, *map(parts.__getitem__, signatures), strict=True))))
        row_of.append(numbers[signatures])
    return OwnCosts(rows=rows, row_of=row_of)


def _ran_in_modules(trace: Trace, repeats: Repeats) -> list[list[int]]:
    """The signatures that each module called itself, with those of blocks that are left out."""
    module_of_call = (*trace.module_calls.modules, _ROOT)  # the last one is where ops outside any call belong
    modules = list(map(module_of_call.__getitem__, trace.ops.module_calls))
    ran: list[list[int]] = [[] for _ in trace.modules]
    for module, signature in zip(modules, trace.ops.signature_of, strict=True):
        ran[module].append(signature)
    for number, run in enumerate(repeats.runs):
        middle, last = repeats.rows_of(number, MIDDLE), repeats.rows_of(number, LAST)
        inside: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for module, in_last, signature in zip(
            modules[middle], modules[last], trace.ops.signature_of[middle], strict=True
        ):
            step = (in_last - module) // (run.left_out + 1)  # how many modules further on, from block to block
            inside[module, step].append(signature)
        for (module, step), signatures in inside.items():
            for block in range(1, run.left_out + 1):
                ran[module + block * step] += signatures
    return ran


def module_costs(trace: Trace, own: OwnCosts) -> tuple[ModuleCost, ...]:
    """Own costs, and those with everything inside along the module tree."""
    parents = [module.parent for module in trace.modules]
    upwards = list(zip(range(len(parents) - 1, _ROOT, -1), parents[:_ROOT:-1], strict=True))
    columns = own.columns()
    whole = [column.copy() for column in columns]
    for column in whole:
        if any(column):
            for module, parent in upwards:  # modules stand in pre-order: children come later
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


def class_costs(trace: Trace, own: OwnCosts) -> tuple[GroupCost, ...]:
    """Own costs by module class, most FLOPs first."""
    rows = _grouped([module.class_name for module in trace.modules], own)
    return tuple(sorted(rows, key=lambda row: (-row.self_flops, row.name)))


def depth_costs(trace: Trace, own: OwnCosts) -> tuple[GroupCost, ...]:
    """Own costs by depth in the module tree; the root is at 0."""
    depths: list[int] = []
    for module in trace.modules:
        depths.append(depths[module.parent] + 1 if depths else 0)
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
