"""Costs of op calls summed by module, by op, by class and by depth; every sum is exact."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torchstone.cost.equal_modules import EqualModules, find_equal_modules
from torchstone.cost.repeats import LAST, MIDDLE, NOTHING_LEFT_OUT, Repeats
from torchstone.record.cost import GroupCost, Kind, ModuleCost, OpCost, SignatureCost
from torchstone.record.trace import Trace

_ROOT = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCosts:
    """What each module costs by its own ops; equal modules share a row."""

    rows: list[tuple[int, ...]]  # FLOPs, matmul FLOPs, bytes read, bytes written, op calls, calls without a price
    row_of: list[int]  # by module
    equal: list[EqualModules]
    upwards: list[tuple[int, int, int]]  # modules that are worked out, innermost first: parent, for how many it stands

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
    ran = _Ran(trace)
    blocks = [ran.blocks(repeats, number) for number in range(len(repeats.runs))]
    apart = _are_apart([one.span for one in blocks])
    equal = [found for one in blocks if (found := ran.repeat(one, may_equal=apart))]
    numbers: dict[tuple[int, ...], int] = {}  # equal modules run equal ops
    rows: list[tuple[int, ...]] = [(0,) * 6]
    row_of = [0] * len(trace.modules)
    for module, signatures in ran.in_module.items():
        key = tuple(signatures)
        if key not in numbers:
            numbers[key] = len(rows)
            rows.append(tuple(map(sum, zip(*map(parts.__getitem__, key), strict=True))))
        row_of[module] = numbers[key]
    for one in equal:
        one.spread(row_of)
    return OwnCosts(rows=rows, row_of=row_of, equal=equal, upwards=_upwards(ran.parents, equal))


class _Ran:
    """The signatures that each module called itself."""

    def __init__(self, trace: Trace) -> None:
        module_of_call = (*trace.module_calls.modules, _ROOT)  # the last one is where ops outside any call belong
        self.parents = [module.parent for module in trace.modules]
        self._modules = list(map(module_of_call.__getitem__, trace.ops.module_calls))
        self._signatures = trace.ops.signature_of
        self.in_module: defaultdict[int, list[int]] = defaultdict(list)
        for module, signature in zip(self._modules, self._signatures, strict=True):
            self.in_module[module].append(signature)

    def blocks(self, repeats: Repeats, number: int) -> "_Blocks":
        """What the blocks of a run call."""
        run, middle, last = repeats.runs[number], repeats.rows_of(number, MIDDLE), repeats.rows_of(number, LAST)
        inside: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for module, in_last, signature in zip(
            self._modules[middle], self._modules[last], self._signatures[middle], strict=True
        ):
            step = (in_last - module) // (run.left_out + 1)  # how many modules further on, from block to block
            inside[module, step].append(signature)
        return _Blocks(inside=inside, left_out=run.left_out)

    def repeat(self, blocks: "_Blocks", *, may_equal: bool) -> EqualModules | None:
        """Add what the blocks ran that are left out; gives the modules that stand for theirs, where there are such."""
        equal = self._equal(blocks.inside, blocks.left_out) if may_equal else None
        for (module, step), signatures in blocks.inside.items():
            if step and equal is not None:
                continue
            for block in range(1, blocks.left_out + 1):
                self.in_module[module + block * step] += signatures
        return equal

    def _equal(self, inside: dict[tuple[int, int], list[int]], copies: int) -> EqualModules | None:
        steps = {step for _, step in inside if step}
        if len(steps) != 1:
            return None
        (step,) = steps
        moving = {module: len(signatures) for (module, moves), signatures in inside.items() if moves}
        found = find_equal_modules(self.parents, moving, step, copies)
        if found is None:
            return None
        alone = all(
            module not in found.followers and (module not in found.modules or len(signatures) == moving.get(module))
            for module, signatures in self.in_module.items()
        )
        return found if alone else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks:
    """What the block of a run that stands for others calls, by module and by how far on the next one's module is."""

    inside: dict[tuple[int, int], list[int]]
    left_out: int

    @property
    def span(self) -> range:
        """All modules from the first to the last one that blocks run in, without those that all blocks share."""
        ends = [module + step * self.left_out for module, step in self.inside if step]
        ends += [module for module, step in self.inside if step]
        return range(min(ends), max(ends) + 1) if ends else range(0)


def _are_apart(spans: Sequence[range]) -> bool:
    """Whether no module is in the reach of two runs."""
    in_order = sorted((span for span in spans if span), key=lambda span: span.start)
    return all(before.stop <= after.start for before, after in pairwise(in_order))


def _upwards(parents: Sequence[int], equal: Sequence[EqualModules]) -> list[tuple[int, int, int]]:
    stands_for = {module: one.copies + 1 for one in equal for module in one.modules if parents[module] < one.first}
    worked_out: list[int] = []
    begin = _ROOT + 1
    for one in sorted(equal, key=lambda one: one.first):
        worked_out += range(begin, one.followers.start)
        begin = one.followers.stop
    worked_out += range(begin, len(parents))
    return [(module, parents[module], stands_for.get(module, 1)) for module in reversed(worked_out)]


def module_costs(trace: Trace, own: OwnCosts) -> tuple[ModuleCost, ...]:
    """Own costs, and those with everything inside along the module tree."""
    columns = own.columns()
    whole = [column.copy() for column in columns]
    for column in whole:
        if any(column):
            for module, parent, times in own.upwards:
                column[parent] += column[module] * times
            for equal in own.equal:
                equal.spread(column)
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
    depths = [0] * len(trace.modules)
    for module, parent, _ in reversed(own.upwards):
        depths[module] = depths[parent] + 1
    for equal in own.equal:
        equal.spread(depths)
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
