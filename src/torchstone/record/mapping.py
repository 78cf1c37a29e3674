"""A model's ops as calls of a device library: what each configuration becomes, and whether the library accepts it."""

from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from torchstone.record.base import Count, Document, Record, Schema
from torchstone.record.consistency import same_length

ACCEPTED, UNMAPPED = "accepted", "unmapped"
VIEW = "view"
WORST_FIRST = ("crashed", "timed out", "not run", "wrong shape", "unmapped", "out of memory", "refused", "accepted")


class MappedOp(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One distinct op configuration."""

    op: str  # aten.addmm.default
    arguments: str  # in one line
    kind: str  # one to one, composed, view, create, on the host, none
    outcome: str  # accepted, refused, out of memory, wrong shape, unmapped, not run, crashed, timed out
    detail: str = ""  # what the library said, in one line
    text: str = ""  # all that it said
    cause: str = ""  # the same for refusals that differ in numbers only
    place: str = ""  # the check in the library's source
    variant: str = ""  # another layout that is accepted, where this one is not: of several, that with least L1
    variant_l1_bytes: Count | None = None  # the highest bytes of one core there, with buffers of ops; None: unknown
    library_calls: tuple[str, ...] = ()  # ttnn.linear, ...
    programs: Count | None = None  # device programs that its first call built; 0 for a view that is free
    calls: Count = 0  # in the model
    flops: Count = 0  # of all its calls


class MappedModule(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One module: the worst outcome among its own ops and of everything inside it."""

    path: str
    own: str  # "" where it calls no op itself
    inclusive: str


class ModulePlan(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The highest bytes per bank while one module ran; None where an op inside it could not say."""

    path: str
    l1_bytes: Count | None  # with circular and dataflow buffers
    dram_bytes: Count | None


class PlacedWeights(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The bytes of all weights and inputs, by arithmetic, from torch to the banks of the device."""

    host_bytes: Count = 0  # weights of convolutions, which stay on the host; not in the other sizes
    model_bytes: Count  # in the element types of the model
    device_bytes: Count  # in those of the device: bfloat16 and int32
    tiled_bytes: Count  # the last two dimensions up to whole tiles
    placed_bytes: Count  # spread over the banks, each of which gets as many tiles as the fullest


class MemoryPlan(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The mapped model executed op by op on the device, in bytes per bank.

    Bytes of tensors are those that ttnn's allocator reports after each op. While an op runs it needs more: its
    temporaries, and in L1 its circular and dataflow buffers.
    """

    outcome: str  # accepted: all of it ran; else how the first step ended that did not
    detail: str = ""
    failed_op: str = ""
    failed_step: int | None = None
    failed_module: str = ""
    l1_bank_bytes: tuple[Count, ...] = ()  # tensors: before the first op, then after each
    dram_bank_bytes: tuple[Count, ...] = ()
    l1_op_bytes: tuple[Count | None, ...] = ()  # the highest while each op ran; None: it could not be asked
    dram_op_bytes: tuple[Count | None, ...] = ()
    l1_buffer_bytes: tuple[Count, ...] = ()  # of which circular and dataflow buffers
    l1_capacity_bytes: Count = 0  # of one bank; 0: unknown
    dram_capacity_bytes: Count = 0
    dram_banks: int = 0
    weights: PlacedWeights | None = None
    peak_l1_op: str = ""
    peak_dram_op: str = ""
    modules: tuple[ModulePlan, ...] = ()

    def check(self) -> None:
        """Raise ValueError where a step has no reading."""
        same_length(l1_bank_bytes=self.l1_bank_bytes, dram_bank_bytes=self.dram_bank_bytes)
        same_length(
            l1_op_bytes=self.l1_op_bytes, dram_op_bytes=self.dram_op_bytes, l1_buffer_bytes=self.l1_buffer_bytes
        )

    @property
    def peak_dram_bytes(self) -> int:
        """The largest number of bytes in one bank of DRAM."""
        return max((*self.dram_bank_bytes, *(one for one in self.dram_op_bytes if one is not None)), default=0)

    @property
    def peak_l1_bytes(self) -> int:
        """The largest number of bytes in one bank of L1, with the buffers of ops."""
        return max((*self.l1_bank_bytes, *(one for one in self.l1_op_bytes if one is not None)), default=0)

    @property
    def peak_l1_tensor_bytes(self) -> int:
        """The largest number of bytes of tensors in one bank of L1 after an op."""
        return max(self.l1_bank_bytes, default=0)

    @property
    def unknown_ops(self) -> int:
        """Ops whose own needs could not be asked for: the peaks may be higher."""
        return sum(one is None for one in self.l1_op_bytes)


class ModelMapping(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The document mapping.json."""

    schema: ClassVar[Schema] = Schema(kind="mapping", version=1)
    model: str
    device: str
    mock: bool = True  # no values: accepted is not a numeric pass
    version: str = ""  # of the library
    ops: tuple[MappedOp, ...] = ()
    modules: tuple[MappedModule, ...] = ()  # in the order of the trace
    skeletons: dict[str, str] = {}  # unique module -> the file of its skeleton, or why there is none
    plan: MemoryPlan | None = None  # None: not asked for
    notes: tuple[str, ...] = ()

    def check(self) -> None:
        """The plan has a reading for each step."""
        if self.plan is not None:
            self.plan.check()

    def _sum(self, value: Callable[[MappedOp], int], *, accepted: bool | None = None, mapped: bool = False) -> int:
        return sum(
            value(one)
            for one in self.ops
            if (accepted is None or (one.outcome == ACCEPTED) is accepted) and (not mapped or one.outcome != UNMAPPED)
        )

    @property
    def calls(self) -> int:
        """Op calls of the model."""
        return self._sum(lambda one: one.calls)

    @property
    def mapped_calls(self) -> int:
        """Calls that a rule covers."""
        return self._sum(lambda one: one.calls, mapped=True)

    @property
    def accepted_calls(self) -> int:
        """Calls whose mapping the library accepts."""
        return self._sum(lambda one: one.calls, accepted=True)

    @property
    def flops(self) -> int:
        """FLOPs of the model."""
        return self._sum(lambda one: one.flops)

    @property
    def accepted_flops(self) -> int:
        """FLOPs of calls whose mapping the library accepts."""
        return self._sum(lambda one: one.flops, accepted=True)

    @property
    def outcomes(self) -> dict[str, int]:
        """Calls by outcome."""
        found: Counter[str] = Counter()
        for one in self.ops:
            found[one.outcome] += one.calls
        return dict(found.most_common())

    @property
    def kinds(self) -> dict[str, int]:
        """Calls by what they become."""
        found: Counter[str] = Counter()
        for one in self.ops:
            found[one.kind] += one.calls
        return dict(found.most_common())

    @property
    def views(self) -> tuple[int, int]:
        """Accepted calls of views, and those among them whose configuration builds no program: these are free."""
        views = [one for one in self.ops if one.kind == VIEW and one.outcome == ACCEPTED]
        return sum(one.calls for one in views), sum(one.calls for one in views if one.programs == 0)


def worst(outcomes: list[str]) -> str:
    """The outcome to fix first; "" for none."""
    return min(outcomes, key=lambda one: WORST_FIRST.index(one) if one in WORST_FIRST else 0, default="")
