"""Equal layers one after another: what is a sum over op calls is worked out for three of them, not for all.

A run is a stretch of op calls made of blocks that are copies of each other: the same signatures, and each tensor either
the same one or as many places further on as in the block before. What all the blocks move together then follows from
what three of them and two of them move. Where anything outside a run looks into the middle of it, there is no run.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import sub

import msgspec

from torchstone.cost.storages import Storages
from torchstone.record.cost import Category, Traffic
from torchstone.record.op import OpTable
from torchstone.record.tensor import TensorTable
from torchstone.record.trace import Trace

_KEPT = 3  # the first block may differ from the others in what comes before it; the third is like all after it
_FEWEST = 2 * _KEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Numbers that each block of a run gives out anew."""

    newest: int  # the last one of the first block
    step: int  # how many a block

    def of(self, block: int) -> range:
        """The numbers that one block gave out."""
        last = self.newest + self.step * block
        return range(last - self.step + 1, last + 1)

    def standing_in(self, blocks: int, kept: int) -> dict[int, int]:
        """For the numbers of the last block, those of the last one that is kept."""
        return dict(zip(self.of(blocks - 1), self.of(kept - 1), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Blocks of op calls that are copies of each other."""

    start: int  # the first op call of the first block
    length: int  # op calls of one block
    blocks: int
    tensors: Made
    storages: Made

    @property
    def end(self) -> int:
        """The first op call after the last block."""
        return self.start + self.length * self.blocks


def over_all_blocks(trace: Trace, runs: Sequence[Run], traffic: Callable[[Trace], Traffic]) -> Traffic:
    """The traffic of a whole trace, from traces in which most blocks of each run are left out."""
    if not runs:
        return traffic(trace)
    few = traffic(_shortened(trace, runs, [_KEPT] * len(runs)))
    parts = [(1, few)]
    for number, run in enumerate(runs):
        kept = [_KEPT - (number == other) for other in range(len(runs))]
        parts += [(run.blocks - _KEPT, few), (_KEPT - run.blocks, traffic(_shortened(trace, runs, kept)))]
    return Traffic(
        read_bytes={one: sum(times * part.read_bytes[one] for times, part in parts) for one in Category},
        written_bytes={one: sum(times * part.written_bytes[one] for times, part in parts) for one in Category},
    )


def find_runs(trace: Trace, storages: Storages) -> list[Run]:
    """The runs of a trace, in order; none inside another."""
    found: list[Run] = []
    end = 0
    for starts in _stretches(trace):
        if starts[0] < end:
            continue
        run = _Blocks(trace, storages, starts).longest_run()
        if run is not None and not _looked_into(trace.ops, run):
            found.append(run)
            end = run.end
    return found


def _stretches(trace: Trace) -> Iterator[list[int]]:
    """Where calls of modules of one class start that follow each other in one call, outermost first."""
    calls = trace.module_calls
    inside: defaultdict[int, list[int]] = defaultdict(list)
    for row, parent in enumerate(calls.parents):
        inside[parent].append(row)
    for rows in inside.values():
        if len(rows) <= _FEWEST:
            continue
        for _, same in groupby(rows, key=lambda row: trace.modules[calls.modules[row]].class_name):
            starts = [calls.first_ops[row] for row in same]
            if len(starts) > _FEWEST:
                yield starts


class _Blocks:
    """The op calls between starts, compared with each other."""

    def __init__(self, trace: Trace, storages: Storages, starts: Sequence[int]) -> None:
        self._ops = trace.ops
        self._storage_of = trace.tensors.storage_of
        self._categories = storages.categories
        self._lasting = storages.kept | storages.names.keys()
        self._starts = starts

    def longest_run(self) -> Run | None:
        """The blocks that follow each other at equal distances in everything; None where they are too few."""
        best = (0, 0)
        first = 0
        step: list[int] | None = None
        before = self._looks(0)
        for block in range(1, len(self._starts) - 1):
            looks = self._looks(block)
            now = list(map(sub, looks[1], before[1])) if looks[0] == before[0] else None
            if now is None or now != step:
                first, step = block - 1, now
            best = max(best, (block - first + 1, first), key=lambda found: found[0])
            before = looks
        blocks, first = best
        if blocks < _FEWEST:
            return None
        start, length = self._starts[first], self._starts[first + 1] - self._starts[first]
        made = [self._made(slice(*self._starts[block : block + 2])) for block in (first, first + 1)]
        kept = [list(map(self._storage_of.__getitem__, tensors)) for tensors in made]
        return Run(start=start, length=length, blocks=blocks, tensors=_made(*made), storages=_made(*kept))

    def _looks(self, block: int) -> tuple[Hashable, list[int]]:
        """What must be equal in all blocks, and what must go on by the same steps."""
        ops, storage_of = self._ops, self._storage_of.__getitem__
        rows = slice(self._starts[block], self._starts[block + 1])
        read = list(chain.from_iterable(ops.inputs[rows]))
        made = self._made(rows)
        kept_in = list(map(storage_of, read))
        kept_out = list(map(storage_of, made))
        category = self._categories.__getitem__
        equal = (
            ops.signature_of[rows],
            list(map(category, kept_in)),
            list(map(category, kept_out)),
            list(map(self._lasting.__contains__, kept_out)),
            len(made),
        )
        return equal, [*read, *made, *kept_in, *kept_out]

    def _made(self, rows: slice) -> list[int]:
        made = list(chain.from_iterable(self._ops.outputs[rows]))
        if self._ops.writes:
            made += chain.from_iterable(self._ops.writes.get(row, ()) for row in range(rows.start, rows.stop))
        return made


def _made(first: Sequence[int], second: Sequence[int]) -> Made:
    newest = max(first, default=0)
    return Made(newest=newest, step=max(second, default=0) - newest)


def _looked_into(ops: OpTable, run: Run) -> bool:
    """Whether an op after the run uses anything that the run made but for its last block."""
    oldest, newest = run.tensors.of(0).start, run.tensors.of(run.blocks - 1).start
    return any(oldest <= tensor < newest for tensor in chain.from_iterable(ops.inputs[run.end :]))


def _shortened(trace: Trace, runs: Sequence[Run], kept: Sequence[int]) -> Trace:
    """The trace with only so many blocks of each run; what comes after uses the last one that is left."""
    ops = trace.ops
    rows: list[int] = []
    moved: dict[int, int] = {}  # tensors of blocks left out -> those that stand in for them
    inputs: list[tuple[int, ...]] = []
    outputs: list[tuple[int, ...]] = []
    begin = 0
    for run, blocks in zip((*runs, None), (*kept, 0), strict=True):
        end = len(ops) if run is None else run.start + blocks * run.length
        rows += range(begin, end)
        inputs += _renumbered(ops.inputs[begin:end], moved)
        outputs += _renumbered(ops.outputs[begin:end], moved)
        if run is not None:
            moved |= run.tensors.standing_in(run.blocks, blocks)
            begin = run.end
    place = {row: number for number, row in enumerate(rows)}
    written = {place[row]: tensors for row, tensors in ops.writes.items() if row in place}
    short = OpTable(
        signatures=ops.signatures,
        signature_of=tuple(map(ops.signature_of.__getitem__, rows)),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        module_calls=tuple(map(ops.module_calls.__getitem__, rows)),
        writes=dict(zip(written, _renumbered(tuple(written.values()), moved), strict=True)),
        forward_calls=len(rows),
    )
    return msgspec.structs.replace(trace, ops=short, tensors=_aliases_moved(trace.tensors, runs, kept))


def _aliases_moved(tensors: TensorTable, runs: Sequence[Run], kept: Sequence[int]) -> TensorTable:
    """Views that were made later of what the last block of a run made show what stands in for it."""
    storage_of = list(tensors.storage_of)
    for run, blocks in zip(runs, kept, strict=True):
        later = slice(run.tensors.of(run.blocks - 1).stop, None)
        moved = run.storages.standing_in(run.blocks, blocks)
        storage_of[later] = [moved.get(storage, storage) for storage in storage_of[later]]
    return msgspec.structs.replace(tensors, storage_of=tuple(storage_of))


def _renumbered(rows: Sequence[tuple[int, ...]], moved: Mapping[int, int]) -> Sequence[tuple[int, ...]]:
    if not moved:
        return rows
    return [tuple([moved.get(tensor, tensor) for tensor in numbers]) for numbers in rows]
