"""Traces in which most copies of a repeat are left out, where that gives exactly what all of them give.

A run is the stretch that a repeat copies and all copies of it: blocks that do the same, one after another. In a short
trace only the first block, the one after it and the last one are left. The one in the middle stands for all that are
left out: each of its op calls counts that number of times, and so does memory that a block owns.

The record says that blocks do the same with tensors at equal distances. That is enough to count op calls and their
bytes. What is live at the peak, and what a fusing compiler moves, also depends on what other ops do with what the
blocks make. So the blocks of a repeat are left out only where

- a block reads what all blocks read, what it has for itself, and what the block before made, nothing further back;
- what it makes lies in new memory, in that of the block before, or in memory that all share or that is its own;
- what each block has for itself is alike, and nothing else uses it;
- no other op reads what a block made, but for the last one's;
- the model gives back the same of every block but the last one, or nothing.

Where one of these does not hold, all copies of that repeat are written out.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from torchstone.cost.boundary_tensors import Ends, cached_outputs, find_ends, has_state_name
from torchstone.record.base import Record
from torchstone.record.repeats import Expansion, Place, Repeat
from torchstone.record.trace import Trace

_FEWEST = 4  # copies of which some are left out
FIRST, MIDDLE, LAST = 0, 1, 2  # the blocks that are left


# --- The short trace, and how what is worked out on it holds for the whole one ---


class Stretch(Record, frozen=True, kw_only=True):
    """Rows or numbers of the blocks that are left, one block after another."""

    start: int
    step: int  # how many a block

    def of(self, block: int) -> range:
        """Those of one block."""
        start = self.start + block * self.step
        return range(start, start + self.step)


class Run(Record, frozen=True, kw_only=True):
    """Blocks of op calls that are copies of each other; all numbers are those of the short trace."""

    ops: Stretch
    calls: Stretch
    tensors: Stretch
    storages: Stretch
    left_out: int  # blocks
    module_step: int
    own: tuple[tuple[int, int], ...] = ()  # memory that was there before: the middle's piece, the step to the next one

    def own_of(self, copies: range) -> list[int]:
        """The pieces of some blocks, counted from the middle one; those of constants made in a block have no step."""
        return [middle + step * copy for middle, step in self.own for copy in copies]


class Change(Record, frozen=True, kw_only=True):
    """What one block of a run leaves behind for good, and what it is the last to use."""

    kept: int = 0
    freed: int = 0


class Moment(Record, frozen=True, kw_only=True):
    """An op call of the whole trace, in a short one."""

    row: int  # the op call that is left for it
    before: tuple[int, ...]  # for each run, how many of the blocks left out ran before it


class Short(Record, frozen=True, kw_only=True):
    """A trace with its runs; without any, it is the whole one."""

    trace: Trace
    ends: Ends
    runs: tuple[Run, ...] = ()

    def times_of_rows(self) -> list[int]:
        """How many op calls of the whole trace each one stands for."""
        times = [1] * len(self.trace.ops)
        for run in self.runs:
            rows = run.ops.of(MIDDLE)
            times[rows.start : rows.stop] = [run.left_out + 1] * len(rows)
        return times

    def times_of_storages(self) -> dict[int, int]:
        """The pieces of memory that stand for more than one."""
        return {
            storage: run.left_out + 1
            for run in self.runs
            for storage in (*run.storages.of(MIDDLE), *run.own_of(range(1)))
        }

    def storages_left_out(self) -> set[int]:
        """Memory that was there before and is used only in blocks left out."""
        return {
            middle + step * copy
            for run in self.runs
            for middle, step in run.own
            if step
            for copy in range(1, run.left_out + 1)
        }

    def spread(self, held: Sequence[int], changes: Sequence[Change]) -> list[int]:
        """Bytes held at each op call of the whole trace, from those at each one of the short trace.

        What a block keeps is added once for each block left out that ran before; what a block is the last to use is
        held until then, so it is added once for each one that did not run yet.
        """
        more = sum(run.left_out * change.freed for run, change in zip(self.runs, changes, strict=True))
        found: list[int] = []
        begin = 0
        for run, change in zip(self.runs, changes, strict=True):
            middle = run.ops.of(MIDDLE)
            found += _raised(held[begin : middle.start], more)
            block = _raised(held[middle.start : middle.stop], more)
            growth = change.kept - change.freed
            if growth:
                for repeat in range(run.left_out + 1):
                    found += _raised(block, repeat * growth)
            else:
                found += block * (run.left_out + 1)
            more += run.left_out * growth
            begin = middle.stop
        return found + _raised(held[begin:], more)

    def moment(self, index: int) -> Moment:
        """Where an op call of the whole trace stands."""
        row = index
        before = []
        for run in self.runs:
            past = row - run.ops.of(MIDDLE).start
            gone = min(max(past // run.ops.step, 0), run.left_out)
            before.append(gone)
            row -= gone * run.ops.step
        return Moment(row=row, before=tuple(before))

    def path_at(self, row: int, moment: Moment, *, handed_on: bool = True) -> str:
        """The module that an op call ran in, as it is at a moment.

        In the middle block's place many blocks ran, one after another. When it stands for the tenth, the first block
        stands for the ninth: for what that one handed on, not for what it keeps.
        """
        trace = self.trace
        call = trace.ops.module_calls[row]
        if call < 0:
            return ""
        shift = 0
        for run, gone in zip(self.runs, moment.before, strict=True):
            if row in run.ops.of(MIDDLE) and call in run.calls.of(MIDDLE):
                shift = gone * run.module_step
            elif handed_on and gone and row in run.ops.of(FIRST) and moment.row in run.ops.of(MIDDLE):
                call = call + run.calls.step if call in run.calls.of(FIRST) else call
                shift = (gone - 1) * run.module_step if call in run.calls.of(MIDDLE) else 0
        return trace.modules[trace.module_calls.modules[call] + shift].path

    def path_in_copy(self, row: int, module_shift: int) -> str:
        """The module that an op call of a middle block ran in, in another block that it stands for."""
        call = self.trace.ops.module_calls[row]
        inside = any(call in run.calls.of(MIDDLE) for run in self.runs)
        module = self.trace.module_calls.modules[call] + (module_shift if inside else 0) if call >= 0 else 0
        return self.trace.modules[module].path if call >= 0 else ""


def _raised(values: Sequence[int], by: int) -> list[int]:
    return [value + by for value in values] if by else list(values)


# --- Which copies can be left out ---


def whole(trace: Trace) -> Short:
    """The trace with every copy written out."""
    return Short(trace=trace, ends=find_ends(trace))


def shorten(trace: Trace) -> Short:
    """The trace with three blocks of each repeat that this is sound for."""
    if any(map(has_state_name, trace.recorded_tensors.left or ())):  # each block leaves one of its own
        return whole(trace)
    chosen = [number for number in range(len(trace.repeats)) if _may_be_chosen(trace.repeats, number)]
    while chosen:
        found = _short_trace(trace, chosen)
        runs = {number: _Proof(trace, found, trace.repeats[number], run).run() for number, run in found.runs.items()}
        sound = _apart({number: run for number, run in runs.items() if run is not None})
        if len(sound) == len(chosen):
            return Short(trace=found.trace, ends=found.ends, runs=tuple(sound.values()))
        chosen = list(sound)
    return whole(trace)


def _may_be_chosen(repeats: Sequence[Repeat], number: int) -> bool:
    """Whether there is something to leave out, and no other repeat copies any of it."""
    repeat = repeats[number]
    if repeat.copies < _FEWEST or repeat.at != repeat.end or not repeat.length.op or not repeat.length.tensor:
        return False
    copied = range(repeat.at.call, repeat.stop.call)
    return not any(
        other.start.call < copied.stop and other.end.call > copied.start
        for place, other in enumerate(repeats)
        if place != number
    )


class _Found(Record, frozen=True, kw_only=True):
    """A short trace before it is known whether it will do."""

    trace: Trace
    ends: Ends
    runs: dict[int, Run]  # by number of their repeat
    number_of: Callable[[int], int]  # from the number of a tensor in the whole trace


def _short_trace(trace: Trace, chosen: Collection[int]) -> _Found:
    growing = Expansion(trace.recorded, [trace.repeats[number] for number in chosen])
    runs = {number: _run(trace.repeats[number], growing.renumbered(trace.repeats[number].start)) for number in chosen}
    for repeat in trace.repeats:
        growing.add_copies(repeat)
    tables = growing.finish()
    short = msgspec.structs.replace(
        trace,
        recorded_tensors=tables.tensors,
        recorded_calls=tables.module_calls,
        recorded_ops=tables.ops,
        repeats=(),
    )
    return _Found(trace=short, ends=find_ends(short), runs=runs, number_of=growing.tensor_number)


def _run(repeat: Repeat, start: Place) -> Run:
    length = repeat.length
    return Run(
        ops=Stretch(start=start.op, step=length.op),
        calls=Stretch(start=start.call, step=length.call),
        tensors=Stretch(start=start.tensor, step=length.tensor),
        storages=Stretch(start=start.storage, step=length.storage),
        left_out=repeat.copies - 2,
        module_step=repeat.module_step,
    )


def _apart(runs: Mapping[int, Run]) -> dict[int, Run]:
    """The runs but those that share memory which another one has for itself."""
    users = Counter(chain.from_iterable(_pieces(run) for run in runs.values()))
    return {number: run for number, run in runs.items() if all(users[piece] == 1 for piece in _pieces(run))}


def _pieces(run: Run) -> Iterator[int]:
    """All the memory that blocks have for themselves, from the middle block on."""
    for middle, step in run.own:
        yield from range(middle, middle + step * (run.left_out + 2), step) if step else (middle,)


class _Given(Record, frozen=True, kw_only=True):
    """Memory that the middle block is given and that no block made."""

    own: set[tuple[int, int]]  # each with the step to the next block's
    shared: set[int]  # by all blocks


class _Proof:
    """Shows that nothing but copying goes on in a run, or that something does."""

    def __init__(self, trace: Trace, found: _Found, repeat: Repeat, run: Run) -> None:
        self._whole = trace
        self._found = found
        self._repeat = repeat
        self._run = run
        self._storage_of = found.trace.tensors.storage_of
        self._held = trace.repeats[0].at.tensor  # tensors up to here have the same number in the short trace

    def run(self) -> Run | None:
        """The run with the memory that each block has for itself; None where it does not do."""
        given = self._given()
        if given is None:
            return None
        run = msgspec.structs.replace(self._run, own=tuple(sorted(given.own)))
        pieces = list(_pieces(run))
        sound = (
            len(set(pieces)) == len(pieces)
            and self._makes_its_own(given)
            and self._are_alike(run)
            and self._stands_alone(set(pieces))
            and self._is_kept_alike()
        )
        return run if sound else None

    def _given(self) -> _Given | None:
        """What the blocks are given; None where that is not at equal distances, or made further back."""
        repeat, run, names = self._repeat, self._run, self._found.ends.names
        made = range(repeat.start.tensor, repeat.end.tensor)
        brought = {self._storage_of[tensor] for tensor in run.tensors.of(MIDDLE)} & names.keys()
        own = {(storage, 0) for storage in brought if storage in run.storages.of(MIDDLE)}  # constants in the code
        shared = set()
        for _, first, step in repeat.external:
            if first in made:
                if step != run.tensors.step:
                    return None
            elif step:
                storage, further = self._storage_of[self._found.number_of(first)], self._step_of_storages(first, step)
                if further is None:
                    return None
                if further:
                    own.add((storage, further))
                else:
                    shared.add(storage)  # each block has a view of its own of it
            else:
                shared.add(self._storage_of[self._found.number_of(first)])
        return _Given(own=own, shared=shared) if shared.isdisjoint(run.storages.of(FIRST)) else None

    def _step_of_storages(self, first: int, step: int) -> int | None:
        """How far on the memory of each block's own tensor lies; None where that is not always as far."""
        tensors = range(first, first + step * self._repeat.copies, step)
        if not 0 <= min(tensors) <= max(tensors) < self._held:
            return None
        storages = list(map(self._storage_of.__getitem__, tensors))
        further = storages[1] - storages[0]
        expected = [storages[0] + further * copy for copy in range(len(tensors))]
        return further if storages == expected and storages[0] in self._found.ends.names else None

    def _makes_its_own(self, given: _Given) -> bool:
        """Whether what a block makes and writes lies in memory that stands for that of all blocks.

        Memory of the block before is one: a view of what that made. Its own views of older memory are none, since they
        would be handed on from block to block and lie further and further back.
        """
        ops, run = self._found.trace.ops, self._run
        rows, middle = run.ops.of(MIDDLE), run.tensors.of(MIDDLE)
        made = chain.from_iterable(ops.outputs[rows.start : rows.stop])
        written = chain.from_iterable(ops.writes.get(row, ()) for row in rows) if ops.writes else ()
        recent = range(run.storages.start, run.storages.of(MIDDLE).stop)
        allowed = {storage for storage, _ in given.own} | given.shared
        places = {self._storage_of[tensor] for tensor in chain(middle, written)}
        return all(tensor in middle for tensor in made) and all(
            storage in recent or storage in allowed for storage in places
        )

    def _are_alike(self, run: Run) -> bool:
        """Whether each block's piece of memory is like that of the others."""
        ends = self._found.ends
        groups = (ends.weights, ends.kept, ends.caches_in, ends.caches_out)
        for middle, step in run.own:
            pieces = range(middle, middle + step * (run.left_out + 2), step) if step else (middle,)
            if len(set(map(ends.sizes.get, pieces))) > 1:
                return False
            if any(len(group.intersection(pieces)) not in (0, len(pieces)) for group in groups):
                return False
        return True

    def _stands_alone(self, own: Collection[int]) -> bool:
        """Whether no op outside reads what the blocks made, but for the last one, or what they have for themselves.

        An op that reads what a block left out made reads the middle one's in the short trace.
        """
        run, inputs = self._run, self._found.trace.ops.inputs
        before = set(chain.from_iterable(inputs[: run.ops.of(MIDDLE).start]))
        after = set(chain.from_iterable(inputs[run.ops.of(LAST).stop :]))
        made = range(run.tensors.start, run.tensors.of(MIDDLE).stop)
        return not any(tensor in made for tensor in after) and all(
            self._storage_of[tensor] not in own for tensor in before | after
        )

    def _is_kept_alike(self) -> bool:
        """Whether the model gives back the same things of every block but the last one, or nothing.

        What it gives back of the first is alive while the next one runs, and that one stands for others.
        """
        root = self._whole.recorded_calls[0] if len(self._whole.recorded_calls) else None
        return root is None or (self._come_alike(root.outputs) and self._come_alike(cached_outputs(root)))

    def _come_alike(self, outputs: Collection[int]) -> bool:
        run, repeat = self._run, self._repeat
        blocks = range(repeat.start.tensor, repeat.stop.tensor)
        memory = range(run.storages.start, run.storages.of(MIDDLE).stop)  # of the first block and the middle one
        kept: set[tuple[int, int]] = set()  # block, and which of its storages
        for tensor in set(outputs):
            if tensor not in blocks:
                if self._storage_of[self._found.number_of(tensor)] in memory:
                    return False
                continue
            block, place = divmod(tensor - blocks.start, run.tensors.step)
            seen = min(block, MIDDLE)
            storage = self._storage_of[run.tensors.of(seen).start + place]
            if storage in memory:
                lies_in, which = divmod(storage - memory.start, run.storages.step)
                kept.add((block + lies_in - seen, which))
        places = Counter(which for block, which in kept if block < repeat.copies)
        return all(count == repeat.copies for count in places.values())
