"""Memories with a first-fit allocator: the only place where the generated numbers come from."""

from dataclasses import dataclass, field

MIB = 1 << 20


class OutOfMemoryError(Exception):
    """A buffer does not fit."""

    def __init__(self, memory: "Memory", bank_bytes: int) -> None:
        super().__init__(memory.name)
        self.memory = memory
        self.bank_bytes = bank_bytes


@dataclass
class Memory:
    """One memory type, seen through one bank: all banks are alike."""

    name: str
    banks: int
    capacity: int  # bytes per bank
    top_down: bool = False
    row_alignment: int = 32
    blocks: list[tuple[int, int]] = field(default_factory=list)  # (start, size), sorted

    def holes(self) -> list[tuple[int, int]]:
        holes, start = [], 0
        for at, size in self.blocks:
            if at > start:
                holes.append((start, at - start))
            start = at + size
        if start < self.capacity:
            holes.append((start, self.capacity - start))
        return holes

    def allocate(self, size: int) -> int:
        holes = reversed(self.holes()) if self.top_down else self.holes()
        for start, room in holes:
            if room >= size:
                at = start + room - size if self.top_down else start
                self.blocks.append((at, size))
                self.blocks.sort()
                return at
        raise OutOfMemoryError(self, size)

    def release(self, at: int) -> None:
        self.blocks = [block for block in self.blocks if block[0] != at]

    @property
    def allocated(self) -> int:
        return sum(size for _, size in self.blocks)

    @property
    def free(self) -> int:
        return self.capacity - self.allocated

    @property
    def largest(self) -> int:
        return max((size for _, size in self.holes()), default=0)

    def reading(self) -> str:
        numbers = (self.capacity, self.allocated, self.free, self.largest)
        total, allocated, free, largest = (f"{number / MIB:.3f} MB" for number in numbers)
        return (
            f"Device {self.name} memory state: MemoryView{{numBanks: {self.banks}, totalBytesPerBank: {total}, "
            f"totalBytesAllocatedPerBank: {allocated}, totalBytesFreePerBank: {free}, "
            f"largestContiguousBytesFreePerBank: {largest}}}"
        )

    def ticks(self) -> tuple[int, int, int]:
        """Allocated, free and largest free as the log can show them: thousandths of a MiB."""
        shown = (f"{number / MIB:.3f}" for number in (self.allocated, self.free, self.largest))
        allocated, free, largest = (int(text.replace(".", "")) for text in shown)
        return allocated, free, largest


def wormhole(*, dram_bytes: int = 1024 * MIB) -> dict[str, Memory]:
    """The memories of one chip, in the order the runtime prints them."""
    return {
        "DRAM": Memory("DRAM", 12, dram_bytes),
        "L1": Memory("L1", 64, 1331712, top_down=True, row_alignment=16),
        "L1_SMALL": Memory("L1_SMALL", 64, 65536),
        "TRACE": Memory("TRACE", 12, 0),
    }


def blackhole() -> dict[str, Memory]:
    """The memories of a Blackhole chip: fewer and larger banks, and rows aligned to 64 bytes."""
    return {
        "DRAM": Memory("DRAM", 8, 4080 * MIB, row_alignment=64),
        "L1": Memory("L1", 110, 1401952, top_down=True, row_alignment=16),
        "L1_SMALL": Memory("L1_SMALL", 110, 65536),
        "TRACE": Memory("TRACE", 8, 0),
    }


@dataclass(eq=False)
class Allocation:
    """A buffer on the device, shared by a tensor and its views."""

    memory: Memory
    at: int
    bank_bytes: int
    owner: str
    padded_bytes: int
    logical_bytes: int
    names: int = 1

    def drop(self) -> bool:
        """One name less; whether the buffer was freed."""
        self.names -= 1
        if self.names == 0:
            self.memory.release(self.at)
        return self.names == 0
