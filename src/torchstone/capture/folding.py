"""Copies of module calls -> the repeats of a trace.

Equal layers follow each other, alone (Llama), in turns (Gemma: five layers with local attention, then one with global
attention) or with op calls of the model between them. A *unit* is a copy, or the call it is a copy of, with the op
calls up to the next unit. Where a block of units comes again and again, and each number in it is as much further on as
in the block before, one repeat stands for all blocks: tensors are numbered as they are met, so weights of equal layers
stand at equal distances, and what one block reads of the one before is exactly one block away. Any other copy is a
repeat of its own.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import sub

from torchstone.capture.rows import Copy, Original, Rows
from torchstone.record.repeats import Place, Repeat

_LONGEST_BLOCK = 64  # units
_FEWEST = 3  # copies of a block that one repeat stands for


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """One module call and the op calls that follow it."""

    key: Hashable  # equal units call equal ops
    start: Place
    end: Place
    module: int
    numbers: list[int]  # tensors in it that it did not make itself, or may not have made
    copy: Copy | None = None  # None: it ran


def fold(rows: Rows) -> tuple[Repeat, ...]:
    """The repeats that stand for all copies, in order; op calls between equal layers become part of them."""
    found: list[Repeat] = []
    for chain_of_units in _chains(rows):
        found += _fold_chain(chain_of_units, rows)
    return tuple(sorted(found, key=lambda repeat: repeat.at.call))


def _chains(rows: Rows) -> Iterator[list[_Unit]]:
    """Units without anything but op calls between them, called by one module call."""
    called: defaultdict[int, list[Copy | Original]] = defaultdict(list)
    originals = {id(copy.original): copy.original for copy in rows.copies}
    everything: list[Copy | Original] = [*originals.values(), *rows.copies]
    for one in everything:
        called[one.parent].append(one)
    gaps = _Gaps(rows)
    for parent, members in called.items():
        members.sort(key=lambda one: _start(one).call)
        units: list[_Unit] = []
        for member, following in zip(members, [*members[1:], None], strict=True):
            gap = gaps.between(_end(member), _start(following), parent) if following is not None else None
            units.append(_unit(member, gap))
            if gap is None:
                yield units
                units = []


def _start(one: Copy | Original) -> Place:
    return one.at if isinstance(one, Copy) else one.extent.start


def _end(one: Copy | Original) -> Place:
    if isinstance(one, Original):
        return one.extent.end
    extent = one.original.extent
    return one.at.plus(extent.end).plus(extent.start, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Between:
    """Op calls between two units."""

    key: Hashable
    end: Place
    numbers: list[int]


class _Gaps:
    """Looks at op calls between module calls."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def between(self, start: Place, end: Place, parent: int) -> _Between | None:
        """What a module call does between two others; None where that is more than calling ops."""
        rows, ops = self._rows, self._rows.ops
        tensors = range(start.tensor, end.tensor)
        if start.call != end.call or rows.tensors.constants(tensors):
            return None
        calls = range(start.op, end.op)
        if not calls:
            return None if start != end else _Between(key=(), end=end, numbers=[])
        first = bisect_left(ops.rows, start.op)
        placed = range(first, first + len(calls))
        if any(ops.module_calls[row] != parent for row in placed):
            return None
        writes = [ops.writes.get(call, ()) for call in calls]
        key = (
            tuple(ops.signature_of[row] for row in placed),
            tuple(ops.sites[row] for row in placed),
            tuple(map(len, writes)),
            len(tensors),
            end.storage - start.storage,
        )
        inside = chain.from_iterable((*ops.inputs[row], *ops.outputs[row]) for row in placed)
        return _Between(key=key, end=end, numbers=[*inside, *chain.from_iterable(writes)])


def _unit(one: Copy | Original, gap: _Between | None) -> _Unit:
    copy = one if isinstance(one, Copy) else None
    original = one.original if isinstance(one, Copy) else one
    used = original.used.tensors
    numbers = list(used if copy is None else map(copy.external.__getitem__, used))
    return _Unit(
        key=(id(original), one.site, gap.key if gap is not None else ()),
        start=_start(one),
        end=_end(one) if gap is None else gap.end,
        module=one.module,
        numbers=numbers if gap is None else numbers + gap.numbers,
        copy=copy,
    )


def _fold_chain(units: Sequence[_Unit], rows: Rows) -> Iterator[Repeat]:
    place = 0
    while place < len(units):
        run = _run_at(units, place, rows)
        size = run.units if run is not None else 1
        yield from (_single(unit.copy) for unit in units[place : place + size] if unit.copy is not None)
        place += size
        if run is not None:
            yield run.repeat
            place += size * run.repeat.copies


def _single(copy: Copy) -> Repeat:
    extent = copy.original.extent
    return Repeat(
        start=extent.start,
        end=extent.end,
        at=copy.at,
        parent=copy.parent,
        module_shift=copy.module - copy.original.module,
        site=-1 if copy.site == copy.original.site else copy.site,
        external=tuple((old, new, 0) for old, new in copy.external.items()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    units: int  # of one block
    repeat: Repeat


def _run_at(units: Sequence[_Unit], place: int, rows: Rows) -> _Run | None:
    """The shortest block from a place on that is followed by enough copies of itself."""
    left = len(units) - place
    for size in range(1, min(_LONGEST_BLOCK, left // (_FEWEST + 1)) + 1):
        if units[place].key == units[place + size].key and units[place + size].copy is not None:
            repeat = _Blocks(units, place, size).repeat(rows)
            if repeat is not None:
                return _Run(units=size, repeat=repeat)
    return None


class _Blocks:
    """Stretches of a number of units, one after another."""

    def __init__(self, units: Sequence[_Unit], place: int, size: int) -> None:
        self._units = units
        self._place = place
        self._size = size

    def _block(self, number: int) -> Sequence[_Unit]:
        start = self._place + number * self._size
        return self._units[start : start + self._size]

    def _numbers(self, number: int) -> list[int]:
        return list(chain.from_iterable(unit.numbers for unit in self._block(number)))

    def repeat(self, rows: Rows) -> Repeat | None:
        """One repeat for all blocks but the first one; None where there are too few that are alike."""
        first = self._block(0)
        keys = [unit.key for unit in first]
        copies = 0
        before = steps = module_steps = None
        numbers: list[int] = []
        while [unit.key for unit in self._block(copies + 1)] == keys:
            block = self._block(copies + 1)
            if any(unit.copy is None for unit in block):
                break
            numbers, modules = self._numbers(copies + 1), [unit.module for unit in block]
            if before is not None:
                now = list(map(sub, numbers, before[0]))
                modules_now = set(map(sub, modules, before[1]))
                if steps is None:
                    steps, module_steps = now, modules_now
                if now != steps or modules_now != module_steps or len(modules_now) != 1:
                    break
            before = numbers, modules
            copies += 1
        if copies < _FEWEST or steps is None or module_steps is None:
            return None
        return self._repeat(copies, steps, module_steps.pop(), rows)

    def _repeat(self, copies: int, steps: list[int], module_step: int, rows: Rows) -> Repeat | None:
        first, second = self._block(0), self._block(1)
        shifts = {after.module - unit.module for unit, after in zip(first, second, strict=True)}
        external = self._external(steps)
        if len(shifts) != 1 or external is None:
            return None
        found = Repeat(
            start=first[0].start,
            end=first[-1].end,
            at=second[0].start,
            copies=copies,
            parent=second[0].copy.parent if second[0].copy is not None else -1,
            module_shift=shifts.pop(),
            module_step=module_step,
            external=tuple((old, *new) for old, new in external.items()),
        )
        return found if _shares_memory_alike(found, rows) else None

    def _external(self, steps: Sequence[int]) -> dict[int, tuple[int, int]] | None:
        """For each tensor that the first block did not make, the one in the second block, and the step from there on.

        The first block may use anything; what matters is that no tensor of it stands for two different ones.
        """
        first, second = self._block(0), self._block(1)
        made = range(first[0].start.tensor, first[-1].end.tensor)
        found: dict[int, tuple[int, int]] = {}
        for old, new, step in zip(self._numbers(0), self._numbers(1), steps, strict=True):
            if old in made:
                if new - old != len(made) or step != len(made):
                    return None
            elif found.setdefault(old, (new, step)) != (new, step):
                return None
        return found if second[0].start == first[-1].end else None


def _shares_memory_alike(repeat: Repeat, rows: Rows) -> bool:
    """Whether tensors that share memory in the first block share it in every copy: views are placed by that."""
    storage_of = rows.tensors.storage_of
    by_storage: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for old, new, step in repeat.external:
        by_storage[storage_of[old]].append((new, step))
    return all(
        len({storage_of[new + number * step] for new, step in same}) == 1
        for same in by_storage.values()
        if len(same) > 1
        for number in range(repeat.copies)
    )
