"""Finding the runs of a trace.

The capture says which module calls are copies of one that ran: the same op calls, with other tensors brought in. Blocks
that begin with copies are a run when each tensor and each module is either the same one or as many places further on as
in the block before. Where anything outside a run looks into the middle of it, where a block looks further back than to
the one before it, or where blocks share memory in another way, there is no run. The first block and the last one stay
in a shortened trace as they are and stand for no other, so the first may be given other things than the rest, and what
the last one makes may be used for other things, and be given back.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise, repeat
from operator import sub

from torchstone.cost.repeats import FIRST, MIDDLE, Numbers, Repeats, Run
from torchstone.cost.storages import Ends, fold_numbers
from torchstone.record.trace import Trace

_FEWEST = 8  # blocks that make shortening worth while
_FEWEST_COPIES = _FEWEST - 2  # the first and the last block may be none


def find_repeats(trace: Trace, ends: Ends) -> Repeats:
    """The runs of a trace, in order; none inside another. A training step has none: its backward pass goes back."""
    if trace.ops.forward_calls < len(trace.ops):
        return Repeats()
    found: list[Run] = []
    end = 0
    for equal in _equal_calls(trace):
        calls = [call for call in equal if trace.module_calls.first_ops[call] >= end]
        run = _Search(trace, ends, calls, after=end).run() if len(calls) >= _FEWEST_COPIES else None
        if run is not None:
            found.append(run)
            end = run.end
    return Repeats(tuple(found))


def _equal_calls(trace: Trace) -> list[list[int]]:
    """Copies of one module call, and that one, where they are made by one call; outermost first."""
    parents, copies = trace.module_calls.parents, trace.provenance.copies
    equal: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for call, source in copies.items():
        calls = equal[parents[call], source]
        if not calls and parents[source] == parents[call]:
            calls.append(source)
        calls.append(call)
    return [equal[key] for key in sorted(equal)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """What is compared of a block."""

    read: list[int]
    made: list[int]
    written: list[int]
    memory: list[int]  # the storages of what it made and wrote
    modules: list[int]  # for each op call, the module that it ran in

    def steps_from(self, before: "_Block") -> "_Block":
        """How much further on everything is than in the block before."""
        return _Block(
            read=list(map(sub, self.read, before.read)),
            made=list(map(sub, self.made, before.made)),
            written=list(map(sub, self.written, before.written)),
            memory=list(map(sub, self.memory, before.memory)),
            modules=list(map(sub, self.modules, before.modules)),
        )


class _Search:
    """Looks for a run around the blocks that begin with some calls; it must begin after another one."""

    def __init__(self, trace: Trace, ends: Ends, calls: Sequence[int], *, after: int = 0) -> None:
        self._trace = trace
        self._ends = ends
        self._calls = calls
        self._after = after
        self._starts = [trace.module_calls.first_ops[call] for call in calls]
        self._starts.append(trace.module_calls.end_ops[calls[-1]])

    def run(self) -> Run | None:
        """The longest run; None where it is too short to gain anything, or where more than copying goes on."""
        first, blocks = max((self._longest(*alike) for alike in self._alike()), key=lambda found: found[1])
        if blocks < _FEWEST_COPIES:
            return None
        start, end = self._starts[first : first + 2]
        block, after = self._block(start, end - start), self._block(end, end - start)
        steps = after.steps_from(block)
        run = Run(
            start=start,
            length=end - start,
            blocks=blocks,
            tensors=_numbers(block.made, after.made),
            storages=_numbers(block.memory, after.memory),
        )
        return self._proven(self._with_first(self._with_last(run, steps)), steps)

    def _alike(self) -> Iterator[tuple[int, int]]:
        """The first of blocks in a row that call the same ops, and how many they are."""
        first = 0
        for _, same in groupby(self._signatures(start, end - start) for start, end in pairwise(self._starts)):
            count = len(list(same))
            yield first, count
            first += count

    def _signatures(self, start: int, length: int) -> tuple[int, ...]:
        """What a block calls; that tells how many tensors each op call reads, makes and writes, too."""
        return self._trace.ops.signature_of[start : start + length]

    def _longest(self, first: int, count: int) -> tuple[int, int]:
        """Of blocks that call the same ops: the first that others follow at equal distances, and how many they are."""
        if count < _FEWEST_COPIES:
            return first, 0
        brought = _BroughtIn(self._trace, self._calls[first], self._starts[first + 1])
        if not brought.makes_something:
            return first, 0
        blocks = list(map(brought.to, self._calls[first : first + count]))
        distances = [list(map(sub, later, before)) for before, later in pairwise(blocks)]
        best = begin = 0
        length = 1
        for number in range(1, count - 1):
            if distances[number] != distances[number - 1]:
                begin = number
            if number - begin + 2 > length:
                best, length = begin, number - begin + 2
        return first + best, length

    def _block(self, start: int, length: int) -> _Block:
        ops, rows = self._trace.ops, slice(start, start + length)
        made = list(chain.from_iterable(ops.outputs[rows]))
        writing = range(start, start + length) if ops.writes else ()
        written = list(chain.from_iterable(ops.writes.get(row, ()) for row in writing))
        return _Block(
            read=list(chain.from_iterable(ops.inputs[rows])),
            made=made,
            written=written,
            memory=list(map(self._trace.tensors.storage_of.__getitem__, made + written)),
            modules=list(map(self._trace.module_calls.modules.__getitem__, ops.module_calls[rows])),
        )

    def _with_last(self, run: Run, steps: _Block) -> Run:
        """With the block that follows, where it goes on like the others though it is no copy."""
        before = run.end - run.length
        if self._signatures(run.end, run.length) != self._signatures(before, run.length):
            return run
        block, after = self._block(before, run.length), self._block(run.end, run.length)
        return replace(run, blocks=run.blocks + 1) if after.steps_from(block) == steps else run

    def _with_first(self, run: Run) -> Run:
        """With the block before, where it makes what the others make; it may be given anything."""
        start = run.start - run.length
        if start < self._after or self._signatures(start, run.length) != self._signatures(run.start, run.length):
            return run
        before, block = self._block(start, run.length), self._block(run.start, run.length)
        steps = block.steps_from(before)
        own = [step for storage, step in zip(block.memory, steps.memory, strict=True) if storage in run.storages.of(0)]
        if {*steps.made} != {run.tensors.step} or not {*own} <= {run.storages.step}:
            return run
        return replace(
            run,
            start=start,
            blocks=run.blocks + 1,
            tensors=run.tensors.from_block(-1),
            storages=run.storages.from_block(-1),
        )

    def _proven(self, run: Run, steps: _Block) -> Run | None:
        if run.blocks < _FEWEST:
            return None
        middle = self._block(run.start + MIDDLE * run.length, run.length)
        own = _Proof(self._trace, self._ends, run).own_memory(middle, steps)
        return None if own is None else replace(run, own=own)


class _BroughtIn:
    """Where copies of a block may differ in more than how many tensors and storages there were before.

    In the call that was copied, that is in tensors that it did not make, and in where those lie: other op calls that
    use them use the same ones in every copy. What follows the call was not copied, so that all of it counts.
    """

    def __init__(self, trace: Trace, call: int, end: int) -> None:
        self._trace = trace
        ops, storage_of = trace.ops, trace.tensors.storage_of
        start, after = trace.module_calls.first_ops[call], trace.module_calls.end_ops[call]
        made = _places(ops.outputs[start:after])
        brought = {tensor: place for tensor, place in _places(ops.inputs[start:after]).items() if tensor not in made}
        shared = {storage_of[tensor] for tensor in brought}
        new = [place for tensor, place in made.items() if storage_of[tensor] not in shared]
        self._brought = list(brought.values())
        self._new = (new or list(made.values()))[:1]
        self._writing = [row - start for row in range(start, end) if row in ops.writes] if ops.writes else []
        self._after = slice(after - start, end - start)
        self.makes_something = bool(made)

    def to(self, call: int) -> list[int]:
        """The modules, tensors and storages at these places of the block that begins with a call."""
        ops, calls = self._trace.ops, self._trace.module_calls
        start = calls.first_ops[call]
        tensors = [ops.inputs[start + row][slot] for row, slot in self._brought]
        tensors += [ops.outputs[start + row][slot] for row, slot in self._new]
        tensors += chain.from_iterable([ops.writes[start + row] for row in self._writing])
        modules = [calls.modules[call]]
        if self._after.start < self._after.stop:
            after = slice(start + self._after.start, start + self._after.stop)
            tensors += chain(*ops.inputs[after], *ops.outputs[after])
            modules += map(calls.modules.__getitem__, ops.module_calls[after])
        return [*modules, *tensors, *map(self._trace.tensors.storage_of.__getitem__, tensors)]


def _places(rows: Sequence[tuple[int, ...]]) -> dict[int, tuple[int, int]]:
    """The first place of each tensor: which of some op calls, and which of its tensors."""
    places: dict[int, tuple[int, int]] = {}
    for row, tensors in enumerate(rows):
        for slot, tensor in enumerate(tensors):
            places.setdefault(tensor, (row, slot))
    return places


def _numbers(block: Sequence[int], after: Sequence[int]) -> Numbers:
    return Numbers(newest=max(block), step=max(after) - max(block))


class _Proof:
    """Shows that nothing but copying goes on in a run, or that something does."""

    def __init__(self, trace: Trace, ends: Ends, run: Run) -> None:
        self._trace = trace
        self._ends = ends
        self._run = run
        self._storage_of = trace.tensors.storage_of

    def own_memory(self, middle: _Block, steps: _Block) -> tuple[tuple[int, int], ...] | None:
        """The memory that was there before and that each block has a piece of; None where this is no run."""
        own = self._read_for_itself(set(zip(middle.read, steps.read, strict=True)))
        if own is None:
            return None
        memory = set(zip(middle.memory, steps.memory, strict=True))
        pieces = [range(first, first + step * (self._run.blocks - MIDDLE), step) for first, step in own]
        all_pieces = set(chain.from_iterable(pieces))
        sound = (
            self._makes_its_own(memory - own)
            and self._are_alike(pieces)
            and self._is_kept_alike(self._ends.kept)
            and self._is_kept_alike(self._ends.caches_out)
            and len(all_pieces) == sum(map(len, pieces))
            and self._brings_nothing_else(all_pieces)
            and self._stands_alone(all_pieces)
            and self._has_folding_paths()
        )
        return tuple(sorted(own)) if sound else None

    def _read_for_itself(self, reads: Collection[tuple[int, int]]) -> set[tuple[int, int]] | None:
        """The storages of the middle block that others have their own of, each with the step to the next block's."""
        run, storage_of = self._run, self._storage_of
        recent = range(run.tensors.of(FIRST).start, run.tensors.of(MIDDLE).stop)
        own = set()
        for tensor, step in reads:
            storage = storage_of[tensor]
            if step == 0:
                continue  # all blocks read the same one
            if storage in self._ends.names:
                further = storage_of[tensor + step] - storage
                if not self._go_on(tensor, step, further):
                    return None
                if further:
                    own.add((storage, further))
            elif step != run.tensors.step or tensor not in recent:
                return None  # it looks further back, or at what was made before the run
        return own

    def _go_on(self, tensor: int, step: int, further: int) -> bool:
        """Whether tensors at a step, one for each block from the middle one on, lie so much further on each."""
        blocks = self._run.blocks - MIDDLE
        tensors, storage = range(tensor, tensor + step * blocks, step), self._storage_of[tensor]
        if not 0 <= tensors[-1] < len(self._storage_of):
            return False
        expected = [storage + further * block for block in range(blocks)]
        return list(map(self._storage_of.__getitem__, tensors)) == expected

    def _makes_its_own(self, memory: Collection[tuple[int, int]]) -> bool:
        """Whether what a block makes lies in new memory, in that of the block before, or in what all blocks share."""
        run, names = self._run, self._ends.names
        start = run.start + MIDDLE * run.length
        made = chain.from_iterable(self._trace.ops.outputs[start : start + run.length])
        recent = range(run.storages.of(FIRST).start, run.storages.of(MIDDLE).stop)
        return all(map(run.tensors.of(MIDDLE).__contains__, made)) and all(
            step == 0 or (step == run.storages.step and storage in recent and storage not in names)
            for storage, step in memory
        )

    def _are_alike(self, pieces: Collection[range]) -> bool:
        """Whether each block's piece of memory is like that of the others."""
        ends, blocks = self._ends, self._run.blocks - MIDDLE
        groups = (ends.weights, ends.kept, ends.caches_in, ends.caches_out)
        for one in pieces:
            sizes = set(map(ends.sizes.get, one))
            names = set(map(fold_numbers, map(ends.names.get, one, repeat(""))))
            if None in sizes or len(sizes) > 1 or len(names) > 1:
                return False
            storages = set(one)
            if any(len(storages & group) not in (0, blocks) for group in groups):
                return False
        return True

    def _is_kept_alike(self, kept: Collection[int]) -> bool:
        """Whether the model gives back the same things of every block but the last, or nothing.

        What it gives back of the first is alive while the next one runs, and that one stands for others.
        """
        run = self._run
        made = range(run.storages.of(FIRST).start, run.storages.of(run.blocks - 1).start)
        places = Counter((storage - made.start) % run.storages.step for storage in kept if storage in made)
        return all(count == run.blocks - 1 for count in places.values())

    def _brings_nothing_else(self, own: set[int]) -> bool:
        """Whether all that was there before and is numbered among what the blocks made is their own."""
        run, storage_of = self._run, self._storage_of
        tensors = range(run.tensors.of(MIDDLE).start, run.tensors.of(run.blocks - 1).stop)
        storages = range(run.storages.of(MIDDLE).start, run.storages.of(run.blocks - 1).stop)
        for external in self._trace.tensors.external:
            tensor = external.tensor
            storage = storage_of[tensor]
            if storage not in own and (tensor in tensors or storage in storages):
                return False
        return True

    def _stands_alone(self, own: set[int]) -> bool:
        """Whether no op outside reads what the blocks made, but for the last one, or what they have for themselves.

        Memory is always read through a tensor, and what lies in that of a block was made by it or by the next one.
        """
        run, inputs = self._run, self._trace.ops.inputs
        made = range(run.tensors.of(FIRST).start, run.tensors.of(run.blocks - 1).start)
        before = inputs[: run.start + run.length]  # the first block may be given anything, but nothing of the others'
        after = set(chain.from_iterable(inputs[run.end :]))
        own_tensors = {one.tensor for one in self._trace.tensors.external if self._storage_of[one.tensor] in own}
        return (
            own_tensors.isdisjoint(chain.from_iterable(before))
            and own_tensors.isdisjoint(after)
            and not any(map(made.__contains__, after))
        )

    def _has_folding_paths(self) -> bool:
        """Whether equal layers are told by their number alone, so that what one holds can be listed for all."""
        run = self._run
        starts = {self._path(run.start + block * run.length) for block in range(run.blocks)}
        middle, after = (
            [self._path(run.start + block * run.length + row) for row in range(run.length)]
            for block in (MIDDLE, MIDDLE + 1)
        )
        return len(starts) == 1 and middle == after

    def _path(self, row: int) -> str:
        call = self._trace.ops.module_calls[row]
        return fold_numbers(self._trace.modules[self._trace.module_calls.modules[call]].path) if call >= 0 else ""
