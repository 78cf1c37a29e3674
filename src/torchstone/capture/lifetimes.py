"""How long memory is really held: until Python and autograd let go of it, which may be long after its last use.

A storage dies when no tensor shares it any more, wherever the tensors are held: in a local variable, in the frame of a
caller, in a cache, in an autograd node. Each death is seen by a weak reference to the storage object, on tensors
without data as well as on real ones.
"""

from weakref import ref

from torch import Tensor, UntypedStorage

from torchstone.record.trace import EagerMemory


class Lifetimes:
    """The bytes that are alive while a model runs, and the most there were."""

    def __init__(self) -> None:
        self._live_bytes = 0
        self._most_bytes = 0  # since the innermost window was opened
        self._before_bytes = 0
        self._sizes: dict[int, int] = {}  # by storage number
        self._holders: dict[int, int] = {}  # how many storage objects stand for each storage that is alive
        self._watched: dict[int, tuple[ref[UntypedStorage], int, int]] = {}  # by id of the reference, which must live
        self._places: dict[int, int] = {}  # by pointer: the storages that are alive
        self._when_dead = self._died
        self._unknown = 0

    def size_of(self, storage: int) -> int | None:
        """Bytes of a storage that was seen."""
        return self._sizes.get(storage)

    def born(self, tensor: Tensor, storage: int, size: int | None = None) -> None:
        """A tensor has memory that was not seen before; its size is that of the storage object unless it is given."""
        try:
            memory = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse and other layouts without plain memory
            self._unknown += 1
            return
        self._holders[storage] = self._holders.get(storage, 0) + 1
        if self._holders[storage] == 1:
            self._sizes[storage] = memory.nbytes() if size is None else size
            self._live_bytes += self._sizes[storage]
            self._most_bytes = max(self._most_bytes, self._live_bytes)
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
        if storage is None or not self._holders[storage]:
            return
        self._live_bytes += memory.nbytes() - self._sizes[storage]
        self._most_bytes = max(self._most_bytes, self._live_bytes)
        self._sizes[storage] = memory.nbytes()

    def lasts(self, storage: int, memory: UntypedStorage) -> None:
        """Memory is there to the end; it may have been seen before, through another tensor."""
        self._holders[storage] = self._holders.get(storage, 0) + 1
        if self._holders[storage] > 1:
            return
        size = self._sizes[storage] = memory.nbytes()
        self._places[memory._cdata] = storage
        self._live_bytes += size
        self._most_bytes = max(self._most_bytes, self._live_bytes)

    def let_go(self, storage: int, stand_in: Tensor | None) -> None:
        """Memory that was to last goes with the tensor that stands for it, or is gone if there is none."""
        if stand_in is None:
            self._free(storage)
        else:
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

    def start(self) -> None:
        """What is alive now was there before the first op."""
        self._before_bytes = self._most_bytes = self._live_bytes

    def open_window(self) -> tuple[int, int]:
        """Look at what follows apart from what was before; the result closes the window again."""
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
        self._most_bytes = max(self._most_bytes, self._live_bytes + rise)

    def close(self) -> None:
        """Watch nothing any more."""
        self._watched.clear()
        del self._when_dead

    def observed(self) -> EagerMemory | None:
        """The result; None where a tensor has memory of unknown size."""
        if self._unknown:
            return None
        return EagerMemory(before_bytes=self._before_bytes, peak_bytes=self._most_bytes)
