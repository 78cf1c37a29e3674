"""How long memory is really held: until Python and autograd let go of it, which may be long after its last use.

A storage dies when no tensor shares it any more, wherever the tensors are held: in a local variable, in the frame of a
caller, in a cache, in an autograd node. Each death is seen by a weak reference to the storage object, on tensors
without data as well as on real ones.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from weakref import ref

from torch import Tensor, UntypedStorage

from torchstone.record.trace import EagerMemory

# The caching allocator that PyTorch has for CUDA devices, with its default settings and one stream. The numbers are in
# c10/core/AllocatorConfig.h.


_MIB = 1 << 20
_LEAST_BLOCK = 512  # sizes are rounded up to whole multiples
_SMALL = _MIB  # up to this, blocks are cut from small segments
_SMALL_SEGMENT = 2 * _MIB
_LARGE_SEGMENT = 20 * _MIB
_OWN_SEGMENT = 10 * _MIB  # from this on, a block that finds no room has a segment of its own
_ROUND_SEGMENT = 2 * _MIB


class _Block:
    """A stretch of a segment, given out or free, with its neighbours in the segment."""

    __slots__ = ("address", "after", "before", "is_free", "is_small", "size")

    def __init__(self, address: int, size: int, *, is_small: bool) -> None:
        self.address, self.size, self.is_small = address, size, is_small
        self.is_free = False
        self.before: _Block | None = None
        self.after: _Block | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among free blocks: the smallest that is large enough is taken, then the lowest."""
        return self.size, self.address


class CachingAllocator:
    """What a device has reserved when memory is given out by PyTorch's caching allocator, which gives none back.

    Allocations are rounded up, and cut from segments. A free block is joined with its free neighbours, but a segment of
    which a part is used is never joined with another one: a tensor may need a new segment although as much is free.
    """

    def __init__(self) -> None:
        self.reserved_bytes = 0
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}  # of small and of large segments
        self._at: dict[int, _Block] = {}  # free blocks by address

    def allocate(self, size: int) -> _Block | None:
        """Give out a block; None for a tensor without elements, which takes none."""
        if not size:
            return None
        size = -(-size // _LEAST_BLOCK) * _LEAST_BLOCK
        block = self._take(size, is_small=size <= _SMALL)
        left = block.size - size
        if left >= _LEAST_BLOCK if block.is_small else left > _SMALL:
            self._cut(block, size)
        return block

    def free(self, block: _Block) -> None:
        """Take a block back, and join it with its free neighbours."""
        before, after = block.before, block.after
        if after is not None and after.is_free:
            self._remove(after)
            self._join(block, after)
        if before is not None and before.is_free:
            self._remove(before)
            self._join(before, block)
            block = before
        self._add(block)

    def _take(self, size: int, *, is_small: bool) -> _Block:
        """The best free block, or a new segment."""
        free = self._free[is_small]
        place = bisect_left(free, (size, 0))
        if place < len(free):
            block = self._at[free[place][1]]
            self._remove(block)
            return block
        own = -(-size // _ROUND_SEGMENT) * _ROUND_SEGMENT
        segment = _SMALL_SEGMENT if is_small else _LARGE_SEGMENT if size < _OWN_SEGMENT else own
        made = _Block(self.reserved_bytes, segment, is_small=is_small)
        self.reserved_bytes += segment
        return made

    def _cut(self, block: _Block, size: int) -> None:
        rest = _Block(block.address + size, block.size - size, is_small=block.is_small)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self._add(rest)

    @staticmethod
    def _join(block: _Block, after: _Block) -> None:
        block.size += after.size
        block.after = after.after
        if after.after is not None:
            after.after.before = block

    def _add(self, block: _Block) -> None:
        block.is_free = True
        self._at[block.address] = block
        insort(self._free[block.is_small], block.place)

    def _remove(self, block: _Block) -> None:
        free = self._free[block.is_small]
        del free[bisect_left(free, block.place)], self._at[block.address]
        block.is_free = False


class Lifetimes:
    """The bytes that are alive while a model runs, and the most there were."""

    def __init__(self) -> None:
        self._allocator: CachingAllocator | None = None
        self._blocks: dict[int, _Block | None] = {}  # by storage number, while an allocator is simulated
        self._live_bytes = 0
        self._most_bytes = 0  # since the innermost window was opened
        self._before_bytes = 0
        self._sizes: dict[int, int] = {}  # by storage number
        self._holders: dict[int, int] = {}  # how many storage objects stand for each storage that is alive
        self._watched: dict[int, tuple[ref[UntypedStorage], int, int]] = {}  # by id of the reference, which must live
        self._places: dict[int, int] = {}  # by pointer: the storages that are alive
        self._lasting: dict[int, int] = {}  # how many of these are there to the end
        self._when_dead = self._died
        self._unknown = 0
        self._gone: Callable[[], list[int]] | None = None
        self.released: set[int] = set()  # storages of tensors that the capture keeps and the model let go of

    def ask(self, gone: Callable[[], list[int]]) -> None:
        """From now on, memory that the capture keeps goes when this gives its pointer."""
        self._gone = gone

    def settle(self) -> None:
        """Let memory go that only the capture still holds: nothing says so at the time, and it matters only later."""
        for pointer in () if self._gone is None else self._gone():
            storage = self._places.get(pointer)
            if storage is not None and self._holders[storage]:
                self.released.add(storage)
                for _ in range(self._lasting.pop(storage, 1)):
                    self._free(storage)

    def _settle_before(self, rise: int) -> None:
        """Settle before the live bytes rise, where that can make a difference.

        What went cannot come back, and the most that there were is the same without it while the live bytes with it do
        not rise above that. An allocator looks at each block that is free.
        """
        if self._live_bytes + rise > self._most_bytes or self._allocator is not None:
            self.settle()

    def simulate_allocator(self) -> None:
        """Also find what a caching allocator reserves; for a run in which each op really runs."""
        self._allocator = CachingAllocator()

    def size_of(self, storage: int) -> int | None:
        """Bytes of a storage that was seen."""
        return self._sizes.get(storage)

    def alive(self, storages: range) -> set[int]:
        """Those of some storages that are held."""
        self.settle()
        numbers = storages if len(storages) < len(self._holders) else filter(storages.__contains__, self._holders)
        return {number for number in numbers if self._holders.get(number)}

    def born(self, tensor: Tensor, storage: int, size: int | None = None) -> None:
        """A tensor has memory that was not seen before; its size is that of the storage object unless it is given."""
        try:
            memory = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse and other layouts without plain memory
            self._unknown += 1
            return
        self._holders[storage] = self._holders.get(storage, 0) + 1
        if self._holders[storage] == 1:
            self._begin(storage, memory.nbytes() if size is None else size)
        self._watch(memory, storage)

    def _watch(self, memory: UntypedStorage, storage: int) -> None:
        reference, pointer = ref(memory, self._when_dead), memory._cdata
        self._watched[id(reference)] = (reference, storage, pointer)
        self._places[pointer] = storage

    def storage_at(self, pointer: int | None) -> int | None:
        """The storage that is alive at a place, if it was seen."""
        return None if pointer is None else self._places.get(pointer)

    def stands_at(self, pointer: int | None, storage: int) -> None:
        """The memory of a stand-in, which lives as long as the capture does, is that of a storage."""
        if pointer is not None:
            self._places[pointer] = storage

    def measure_again(self, tensor: Tensor) -> None:
        """An op may have given the memory of a tensor another size."""
        try:
            memory = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return
        storage = self._places.get(memory._cdata)
        if storage is None or not self._holders[storage] or memory.nbytes() == self._sizes[storage]:
            return
        old_size, old_block = self._sizes[storage], self._blocks.get(storage)
        self._begin(storage, memory.nbytes())  # the new memory is there before the old is given back
        self._live_bytes -= old_size
        self._give_back(old_block)

    def lasts(self, memory: UntypedStorage, new: int) -> int:
        """Memory is there to the end; gives its number: a new one, unless it was seen through another tensor."""
        pointer = memory._cdata
        storage = self._places.get(pointer)
        if storage is not None:
            self._holders[storage] = self._holders.get(storage, 0) + 1
            self._lasting[storage] = self._lasting.get(storage, 0) + 1
            return storage
        self._places[pointer] = new
        self._holders[new] = self._lasting[new] = 1
        self._begin(new, memory.nbytes())
        return new

    def _begin(self, storage: int, size: int) -> None:
        self._settle_before(size)
        self._sizes[storage] = size
        self._live_bytes += size
        self._most_bytes = max(self._most_bytes, self._live_bytes)
        if self._allocator is not None:
            self._blocks[storage] = self._allocator.allocate(size)

    def lives_with(self, storage: int, stand_in: Tensor) -> None:
        """The memory lives as long as the tensor that stands for it, too, in whose place the model put another one."""
        self._holders[storage] += 1
        self._watch(stand_in.untyped_storage(), storage)

    def _died(self, reference: ref[UntypedStorage]) -> None:
        """A storage object is gone."""
        watched = self._watched.pop(id(reference), None)
        if watched is None:  # the capture is over
            return
        _, storage, pointer = watched
        if self._places.get(pointer) == storage:
            del self._places[pointer]
        self._free(storage)

    def _free(self, storage: int) -> None:
        """One of those who hold a storage is gone."""
        self._holders[storage] -= 1
        if not self._holders[storage]:
            self._live_bytes -= self._sizes[storage]
            self._give_back(self._blocks.pop(storage, None))

    def _give_back(self, block: _Block | None) -> None:
        if block is not None and self._allocator is not None:
            self._allocator.free(block)

    def start(self) -> None:
        """What is alive now was there before the first op."""
        self._before_bytes = self._most_bytes = self._live_bytes

    def open_window(self) -> tuple[int, int]:
        """Look at what follows apart from what was before; the result closes the window again."""
        self.settle()
        outer = (self._most_bytes, self._live_bytes)
        self._most_bytes = self._live_bytes
        return outer

    def close_window(self, outer: tuple[int, int]) -> int:
        """How far the live bytes rose above those at the opening."""
        most, live = outer
        rise = self._most_bytes - live
        self._most_bytes = max(self._most_bytes, most)
        return rise

    def rises(self, rise: int) -> None:
        """A call that does not run would have raised the live bytes by this for a time."""
        self._settle_before(rise)
        self._most_bytes = max(self._most_bytes, self._live_bytes + rise)

    def close(self) -> None:
        """Watch nothing any more."""
        self._gone = None
        self._watched.clear()
        del self._when_dead

    def observed(self) -> EagerMemory | None:
        """The result; None where a tensor has memory of unknown size."""
        if self._unknown:
            return None
        reserved = None if self._allocator is None else self._allocator.reserved_bytes
        return EagerMemory(before_bytes=self._before_bytes, peak_bytes=self._most_bytes, reserved_bytes=reserved)
