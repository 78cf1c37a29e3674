"""What a ttnn call needs in L1 and DRAM while it runs: its results, temporaries, circular and dataflow buffers.

A call is made twice. The first time nothing is dispatched and nothing is allocated: only there do the buffers of all
programs appear, the circular ones of older ops and the dataflow buffers of newer ones. The second time is the real
call, after which the allocator says what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchstone.backends.ttnn.device import open_device
from torchstone.foreign import foreign_code

_ON_THE_HOST = frozenset({"from_device", "to_torch", "from_torch", "to_device", "deallocate"})
_CORE_BUFFERS = ("circular_buffer_allocate", "dataflow_buffer_allocate", "scratchpad_allocate")
_BORROWED = ("1", 1, True)


@dataclass
class Footprint:
    """The highest bytes per bank that calls reached since the last `take`; L1 is None where a call could not say."""

    l1: int | None = 0
    dram: int | None = 0
    buffers: int = 0  # of L1, circular and dataflow buffers at that moment
    call: str = ""  # the ttnn call with the highest L1


@dataclass
class Probe:
    """Measures each call before it is made."""

    now: Footprint = field(default_factory=Footprint)

    def take(self) -> Footprint:
        """What was measured since the last time."""
        found, self.now = self.now, Footprint()
        return found

    def measure(
        self, function: Callable[..., object], name: str, given: Sequence[object], named: Mapping[str, object]
    ) -> None:
        """Make the call without dispatch; what it would refuse, the real call refuses right after."""
        if name in _ON_THE_HOST:
            return
        import ttnn

        l1_before, dram_before = allocated()
        capture = ttnn._ttnn.graph  # noqa: SLF001 - ttnn.graph would need torch
        capture.begin_graph_capture(capture.RunMode.NO_DISPATCH)
        try:
            with foreign_code() as ran:  # ttnn raises anything; an op that needs values or addresses cannot say
                function(*given, **named)
        finally:
            nodes = capture.end_graph_capture()
        if ran.error is not None:
            self.now.l1 = self.now.dram = None
            self.now.call = name
            return
        l1, buffers, dram = highest(nodes)
        if self.now.l1 is not None and l1_before + l1 > self.now.l1:
            self.now.l1, self.now.buffers, self.now.call = l1_before + l1, buffers, name
        if self.now.dram is not None:
            self.now.dram = max(self.now.dram, dram_before + dram)


def highest(nodes: Sequence[Mapping[str, Any]]) -> tuple[int, int, int]:
    """The highest growth of L1 with buffers, the buffers at that moment, and the highest growth of DRAM, per bank.

    Buffers of a program begin at one address on every core, so that the largest sum over cores counts; those that
    borrow the memory of a tensor need none of their own. A mesh lists the buffers of each chip: one chip counts.
    """
    live = {"L1": 0, "DRAM": 0}
    l1 = at_peak = dram = 0
    program: list[tuple[int, str]] = []
    chip: object = None
    for node in nodes:
        kind, about = node["node_type"], node.get("params") or {}
        if kind in ("buffer_allocate", "buffer_deallocate") and about.get("type") in live:
            size = int(about.get("max_size_per_bank") or 0)
            live[about["type"]] += size if kind == "buffer_allocate" else -size
        elif kind in _CORE_BUFFERS:
            chip = about.get("device_id") if not program else chip
            own = about.get("globally_allocated") not in _BORROWED and about.get("borrows_memory") not in _BORROWED
            if own and about.get("device_id") == chip:
                program.append((int(about.get("size") or 0), str(about.get("core_range_set", ""))))
        elif kind == "circular_buffer_deallocate_all":
            program = []
        buffers = _on_one_core(program)
        if live["L1"] + buffers > l1:
            l1, at_peak = live["L1"] + buffers, buffers
        dram = max(dram, live["DRAM"])
    return l1, at_peak, dram


def _on_one_core(buffers: Sequence[tuple[int, str]]) -> int:
    """The largest sum on any core; without overlap of core ranges known, buffers of one range add up."""
    if len({cores for _, cores in buffers}) <= 1:
        return sum(size for size, _ in buffers)
    totals: dict[tuple[int, int], int] = {}
    for size, cores in buffers:
        for core in _cores(cores):
            totals[core] = totals.get(core, 0) + size
    return max(totals.values(), default=sum(size for size, _ in buffers))


def _cores(text: str) -> list[tuple[int, int]]:
    """The cores of a text such as {[0-0 - 7-3], [0-4 - 1-4]}."""
    found = []
    for part in text.strip("{}").split("["):
        ends = [end.split("-") for end in part.partition("]")[0].split(" - ")]
        if len(ends) == 2 and all(len(end) == 2 and all(x.strip().isdigit() for x in end) for end in ends):  # noqa: PLR2004 - two corners of two numbers
            (left, top), (right, bottom) = ([int(x) for x in end] for end in ends)
            found += [(x, y) for x in range(left, right + 1) for y in range(top, bottom + 1)]
    return found


def allocated() -> tuple[int, int]:
    """Bytes per bank of L1 and of DRAM, as the allocator says."""
    l1, dram = _views()
    return int(l1.total_bytes_allocated_per_bank), int(dram.total_bytes_allocated_per_bank)


def capacity() -> list[int]:
    """Bytes of one bank of L1 and of DRAM, and the number of banks of DRAM."""
    l1, dram = _views()
    return [int(l1.total_bytes_per_bank), int(dram.total_bytes_per_bank), int(dram.num_banks)]


def _views() -> tuple[Any, Any]:
    import ttnn

    device = open_device()
    return ttnn.get_memory_view(device, ttnn.BufferType.L1), ttnn.get_memory_view(device, ttnn.BufferType.DRAM)
