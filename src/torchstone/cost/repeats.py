"""Equal layers one after another: a few of them are worked out, and one of those stands for many.

A run is a stretch of op calls made of blocks that are copies of each other. In a shortened trace only the first block
of a run, the one after it and the last one are left. The one in the middle stands for all that are left out: each of
its op calls counts so many times, and so does each piece of memory that a block has for itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FIRST, MIDDLE, LAST = 0, 1, 2  # the blocks that are left
LEFT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Numbers that each block of a run gives out anew."""

    newest: int  # the last one of the first block
    step: int  # how many a block

    def of(self, block: int) -> range:
        """The numbers that one block gave out."""
        last = self.newest + self.step * block
        return range(last - self.step + 1, last + 1)

    def from_block(self, block: int) -> "Numbers":
        """The same numbers, with another block as the first."""
        return Numbers(newest=self.newest + self.step * block, step=self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Blocks of op calls that are copies of each other."""

    start: int  # the first op call of the first block
    length: int  # op calls of one block
    blocks: int
    tensors: Numbers
    storages: Numbers
    own: tuple[tuple[int, int], ...] = ()  # memory that was there before, one piece a block: the middle's, and the step

    @property
    def end(self) -> int:
        """The first op call after the last block."""
        return self.start + self.length * self.blocks

    @property
    def left_out(self) -> int:
        """How many blocks a shortened trace does not have."""
        return self.blocks - LEFT

    def own_of(self, block: int) -> list[int]:
        """The memory that was there before and that only this block uses; not told of the first block."""
        return [middle + step * (block - MIDDLE) for middle, step in self.own]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one block of a run leaves behind for good, and what it is the last to use."""

    kept: int = 0
    freed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An op call of the whole trace, in a shortened one."""

    row: int  # the op call that is left for it
    before: tuple[int, ...]  # for each run, how many of the blocks left out ran before it

    def held_by(self, runs: Sequence[Run]) -> list[Change]:
        """For each run, how many blocks left out hold what they keep, and how many what they will free."""
        return [Change(kept=gone, freed=run.left_out - gone) for run, gone in zip(runs, self.before, strict=True)]


@dataclass(frozen=True, slots=True)
class Repeats:
    """What a shortened trace leaves out; without runs, nothing."""

    runs: tuple[Run, ...] = ()

    def rows_of(self, number: int, block: int) -> slice:
        """Where a block that is left stands in the shortened trace."""
        run = self.runs[number]
        shift = sum(earlier.left_out * earlier.length for earlier in self.runs[:number])
        return slice(run.start - shift + block * run.length, run.start - shift + (block + 1) * run.length)

    def times_of_rows(self, rows: int) -> list[int]:
        """How many op calls of the whole trace each one of the shortened trace stands for."""
        times = [1] * rows
        for number, run in enumerate(self.runs):
            times[self.rows_of(number, MIDDLE)] = [run.left_out + 1] * run.length
        return times

    def times_of_storages(self) -> dict[int, int]:
        """The pieces of memory that stand for more than one."""
        return {
            storage: run.left_out + 1
            for run in self.runs
            for storage in (*run.storages.of(MIDDLE), *run.own_of(MIDDLE))
        }

    def storages_left_out(self) -> set[int]:
        """Memory that was there before and is used only in blocks left out."""
        return {
            storage
            for run in self.runs
            for middle, step in run.own
            for storage in range(middle + step, middle + step * (run.left_out + 1), step)
        }

    def tensors_left(self, tensors: int) -> list[slice]:
        """The stretches of tensor numbers that no block left out gave out."""
        ends = [0]
        for run in self.runs:
            ends += [run.tensors.of(LAST).start, run.tensors.of(run.blocks - 1).start]
        return [slice(*pair) for pair in zip(ends[::2], [*ends[1::2], tensors], strict=True)]

    def spread(self, held: Sequence[int], changes: Sequence[Change]) -> list[int]:
        """Bytes held at each op call of the whole trace, from those at each one of the shortened trace."""
        more = sum(run.left_out * change.freed for run, change in zip(self.runs, changes, strict=True))
        found: list[int] = []
        begin = 0
        for number, (run, change) in enumerate(zip(self.runs, changes, strict=True)):
            middle = self.rows_of(number, MIDDLE)
            found += _raised(held[begin : middle.start], more)
            block = _raised(held[middle], more)
            growth = change.kept - change.freed
            for repeat in range(run.left_out + 1):
                found += _raised(block, repeat * growth)
            more += run.left_out * growth
            begin = middle.stop
        return found + _raised(held[begin:], more)

    def moment(self, index: int) -> Moment:
        """Where an op call of the whole trace stands."""
        row = index
        before = []
        for run in self.runs:
            block = (index - run.start) // run.length if run.start <= index else FIRST
            gone = min(max(block - MIDDLE, 0), run.left_out)
            before.append(gone)
            row -= gone * run.length
        return Moment(row=row, before=tuple(before))


NOTHING_LEFT_OUT = Repeats()


def _raised(values: Sequence[int], by: int) -> list[int]:
    return [value + by for value in values] if by else list(values)
