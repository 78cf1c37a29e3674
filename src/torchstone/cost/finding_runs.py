"""Finding the runs of a trace.

Two blocks are copies when their op calls have the same signatures and each tensor is either the same one or as many
places further on as in the block before. Where anything outside a run looks into the middle of it, where a block looks
further back than to the one before it, or where blocks share memory in another way, there is no run.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise, repeat
from operator import sub

from torchstone.cost.ends import Ends, fold_numbers
from torchstone.cost.repeats import FIRST, LEFT, MIDDLE, Numbers, Repeats, Run
from torchstone.record.trace import Trace

_FEWEST = 2 * LEFT


def find_repeats(trace: Trace, ends: Ends) -> Repeats:
    """The runs of a trace, in order; none inside another. A training step has none: its backward pass goes back."""
    if trace.ops.forward_calls < len(trace.ops):
        return Repeats()
    found: list[Run] = []
    end = 0
    for calls in _stretches(trace):
        starts = [trace.module_calls.first_ops[call] for call in calls]
        if starts[0] < end:
            continue
        run = _Search(trace, ends, starts).run()
        if run is not None:
            found.append(run)
            end = run.end
    return Repeats(tuple(found))


def _stretches(trace: Trace) -> Iterator[list[int]]:
    """Calls of modules of one class that follow each other in one call, outermost first."""
    calls = trace.module_calls
    inside: defaultdict[int, list[int]] = defaultdict(list)
    for row, parent in enumerate(calls.parents):
        inside[parent].append(row)
    for rows in inside.values():
        if len(rows) <= _FEWEST:
            continue
        for _, same in groupby(rows, key=lambda row: trace.modules[calls.modules[row]].class_name):
            alike = list(same)
            if len(alike) > _FEWEST:
                yield alike


@dataclass(frozen=True, slots=True)
class _Block:
    """What is compared of a block."""

    read: list[int]
    made: list[int]
    memory: list[int]  # the storages of what it made

    def steps_from(self, before: "_Block") -> list[int]:
        """How much further on everything is than in the block before."""
        steps = list(map(sub, self.read, before.read))
        steps += map(sub, self.made, before.made)
        steps += map(sub, self.memory, before.memory)
        return steps


class _Search:
    """Looks for a run among the blocks that begin at the starts."""

    def __init__(self, trace: Trace, ends: Ends, starts: Sequence[int]) -> None:
        self._trace = trace
        self._ends = ends
        self._starts = starts

    def run(self) -> Run | None:
        """The longest run; None where it is too short to gain anything, or where more than copying goes on."""
        first, blocks = max((self._longest(*alike) for alike in self._alike()), key=lambda found: found[1])
        if blocks < _FEWEST or self._starts[first] == self._starts[first + 1]:
            return None
        block, second = self._block(first), self._block(first + 1)
        run = Run(
            start=self._starts[first],
            length=self._starts[first + 1] - self._starts[first],
            blocks=blocks,
            tensors=_numbers(block.made, second.made),
            storages=_numbers(block.memory, second.memory),
        )
        own = _Proof(self._trace, self._ends, run).own_memory(block, second.steps_from(block))
        return None if own is None else replace(run, own=own)

    def _alike(self) -> Iterator[tuple[int, int]]:
        """The first of blocks in a row that call the same ops and write in the same places, and how many they are."""
        ops, starts = self._trace.ops, self._starts
        calls = [ops.signature_of[start:end] for start, end in pairwise(starts)]
        writes = [
            [row - start for row in range(start, end) if row in ops.writes] if ops.writes else []
            for start, end in pairwise(starts)
        ]
        first = 0
        for _, same in groupby(zip(calls, writes, strict=True)):
            count = len(list(same))
            yield first, count
            first += count

    def _longest(self, first: int, count: int) -> tuple[int, int]:
        """Of blocks that call the same ops: the first that others follow at equal distances, and how many they are."""
        if count < _FEWEST:
            return first, 0
        distances = [_distances(column, count) for column in self._columns(first, first + count)]
        best = begin = 0
        length = 1
        for number in range(1, count - 1):
            if any(column[number] != column[number - 1] for column in distances):
                begin = number
            if number - begin + 2 > length:
                best, length = begin, number - begin + 2
        return first + best, length

    def _columns(self, first: int, end: int) -> list[list[int]]:
        """What blocks read, what they make, where that lies, and what they write over."""
        ops = self._trace.ops
        rows = slice(self._starts[first], self._starts[end])
        made = list(chain.from_iterable(ops.outputs[rows]))
        written = [ops.writes.get(row, ()) for row in range(rows.start, rows.stop)] if ops.writes else []
        return [
            list(chain.from_iterable(ops.inputs[rows])),
            made,
            list(map(self._trace.tensors.storage_of.__getitem__, made)),
            list(chain.from_iterable(written)),
        ]

    def _block(self, number: int) -> _Block:
        ops = self._trace.ops
        start, end = self._starts[number : number + 2]
        made = list(chain.from_iterable(ops.outputs[start:end]))
        if ops.writes:
            made += chain.from_iterable(ops.writes.get(row, ()) for row in range(start, end))
        return _Block(
            read=list(chain.from_iterable(ops.inputs[start:end])),
            made=made,
            memory=list(map(self._trace.tensors.storage_of.__getitem__, made)),
        )


def _distances(column: Sequence[int], blocks: int) -> list[list[int]]:
    """How much further on each entry of a column is than in the block before, block by block."""
    size = len(column) // blocks
    apart = list(map(sub, column[size:], column))
    return [apart[block * size : (block + 1) * size] for block in range(blocks - 1)]


def _numbers(first: Sequence[int], second: Sequence[int]) -> Numbers:
    newest = max(first, default=0)
    return Numbers(newest=newest, step=max(second, default=0) - newest)


class _Proof:
    """Shows that nothing but copying goes on in a run, or that something does."""

    def __init__(self, trace: Trace, ends: Ends, run: Run) -> None:
        self._trace = trace
        self._ends = ends
        self._run = run
        self._storage_of = trace.tensors.storage_of

    def own_memory(self, block: _Block, steps: Sequence[int]) -> tuple[tuple[int, int], ...] | None:
        """The memory that was there before and that each block has a piece of; None where this is no run."""
        reads, rest = steps[: len(block.read)], steps[len(block.read) :]
        own = self._read_for_itself(set(zip(block.read, reads, strict=True)))
        if own is None:
            return None
        memory = set(zip(block.memory, rest[len(block.made) :], strict=True))
        pieces = [range(first, first + step * self._run.blocks, step) for first, step in own]
        sound = (
            self._makes_its_own(memory - own)
            and self._are_alike(pieces)
            and self._is_kept_alike(self._ends.kept)
            and self._is_kept_alike(self._ends.caches_out)
            and self._stands_alone(set(chain.from_iterable(pieces)))
            and self._has_folding_paths()
        )
        return tuple(sorted(own)) if sound else None

    def _read_for_itself(self, reads: Collection[tuple[int, int]]) -> set[tuple[int, int]] | None:
        """The storages of the first block that others have their own of, each with the step to the next block's."""
        run, storage_of = self._run, self._storage_of
        recent = range(run.tensors.of(-1).start, run.tensors.of(FIRST).stop)
        own = set()
        for tensor, step in reads:
            storage = storage_of[tensor]
            if step == 0:
                continue  # all blocks read the same one
            if storage in self._ends.names:
                tensors = range(tensor, tensor + step * run.blocks, step)
                if not (0 <= tensors[-1] < len(storage_of)):
                    return None
                pieces = list(map(storage_of.__getitem__, tensors))
                further = pieces[1] - pieces[0]
                if any(map(further.__ne__, map(sub, pieces[1:], pieces))):
                    return None
                if further:
                    own.add((storage, further))
            elif step != run.tensors.step or tensor not in recent:
                return None  # it looks further back, or at what was made before the run
        return own

    def _makes_its_own(self, memory: Collection[tuple[int, int]]) -> bool:
        """Whether what a block makes lies in new memory, in that of the block before, or in what all blocks share."""
        run, names = self._run, self._ends.names
        made = chain.from_iterable(self._trace.ops.outputs[run.start : run.start + run.length])
        recent = range(run.storages.of(-1).start, run.storages.of(FIRST).stop)
        return all(map(run.tensors.of(FIRST).__contains__, made)) and all(
            step == 0 or (step == run.storages.step and storage in recent and storage not in names)
            for storage, step in memory
        )

    def _are_alike(self, pieces: Collection[range]) -> bool:
        """Whether each block's piece of memory is like that of the others, and used by no other block."""
        ends, blocks = self._ends, self._run.blocks
        groups = (ends.weights, ends.kept, ends.caches_in, ends.caches_out)
        for one in pieces:
            sizes = set(map(ends.sizes.get, one))
            names = set(map(fold_numbers, map(ends.names.get, one, repeat(""))))
            if None in sizes or len(sizes) > 1 or len(names) > 1:
                return False
            storages = set(one)
            if any(len(storages & group) not in (0, blocks) for group in groups):
                return False
        return len(set(chain.from_iterable(pieces))) == len(pieces) * blocks

    def _is_kept_alike(self, kept: Collection[int]) -> bool:
        """Whether the model gives back the same things of every block, or nothing."""
        run = self._run
        made = self._made_by_all(run.storages)
        places = Counter((storage - made.start) % run.storages.step for storage in kept if storage in made)
        return all(count == run.blocks for count in places.values())

    def _stands_alone(self, own: set[int]) -> bool:
        """Whether nothing outside uses what the blocks made, but for the last one, or what they have for themselves."""
        run, ops, storage_of = self._run, self._trace.ops, self._storage_of
        tensors = self._made_by_all(run.tensors)
        storages = self._made_by_all(run.storages)
        for external in self._trace.tensors.external:
            storage = storage_of[external.tensor]
            if (external.tensor in tensors or storage in storages) and storage not in own:
                return False
        last, around_last = run.tensors.of(run.blocks - 1), run.storages.of(run.blocks - 2).start
        for rows in (slice(0, run.start), slice(run.end, None)):
            used = {*chain.from_iterable(ops.inputs[rows]), *chain.from_iterable(ops.outputs[rows])}
            if any(tensor in tensors and tensor not in last for tensor in used):
                return False
            memory = set(map(storage_of.__getitem__, used))
            if not own.isdisjoint(memory) or any(storages.start <= one < around_last for one in memory):
                return False
        return True

    def _has_folding_paths(self) -> bool:
        """Whether equal layers are told by their number alone, so that what one holds can be listed for all."""
        run = self._run
        starts = {self._path(run.start + block * run.length) for block in range(run.blocks)}
        paths = [
            [self._path(run.start + block * run.length + row) for row in range(run.length)] for block in (FIRST, MIDDLE)
        ]
        return len(starts) == 1 and paths[FIRST] == paths[MIDDLE]

    def _path(self, row: int) -> str:
        call = self._trace.ops.module_calls[row]
        return fold_numbers(self._trace.modules[self._trace.module_calls.modules[call]].path) if call >= 0 else ""

    def _made_by_all(self, numbers: Numbers) -> range:
        return range(numbers.of(FIRST).start, numbers.of(self._run.blocks - 1).stop)
