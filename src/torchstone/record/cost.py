"""Costs of a model: FLOPs, bytes, peak memory and predicted time, with the conventions behind each number."""

from enum import StrEnum
from fractions import Fraction
from functools import singledispatch
from math import log2
from typing import ClassVar

import msgspec

from torchstone.record.base import Count, Document, Record, Schema
from torchstone.record.consistency import in_range, same_length
from torchstone.units import many, show_bytes, show_count

# --- Hardware limits, and the predicted time of a trace (roofline) ---


class Hardware(Record, frozen=True, kw_only=True):
    """The limits of a device or of several that work as one."""

    name: str
    title: str
    peak_flops: dict[str, float]  # FLOP/s of matrix multiplication by element type
    vector_flops: float  # FLOP/s of everything else
    memory_bytes: Count
    memory_bytes_per_s: float
    launch_s: float  # minimum time of an op
    source: str  # where the numbers come from
    link_bytes_per_s: float | None = None  # to the other devices; None: not known
    devices: int = 1
    note: str = ""
    convention: str = ""  # what the rates count: dense or sparse, math fidelity, chip or board; "": not stated
    tile: int | None = None  # matrices are stored in whole tiles of this side; None: as they are
    as_of: str = ""  # the day on which the numbers were entered from the source; "": not stated
    unconfirmed: tuple[str, ...] = ()  # keys of numbers that are assumed, or that no document read that day confirms
    caching_allocator: bool = False  # eager PyTorch gives its memory out by the caching allocator of CUDA devices


class Bound(StrEnum):
    """What an op waits for."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LAUNCH = "launch"


class Fits(StrEnum):
    """Whether a model fits in memory."""

    YES = "yes"
    NO = "no"
    BETWEEN = "between"  # only if memory is freed earlier, or with less rounding and gaps, than eager PyTorch does
    UNKNOWN = "unknown"  # what is known fits; there are tensors of unknown size, or eager lifetimes were not observed


class OpPrediction(Record, frozen=True, kw_only=True):
    """How long one call of a signature takes at best, and why."""

    seconds: float
    bound: Bound
    intensity: float | None  # FLOPs per byte; None where no byte moves


class DevicePlan(Record, frozen=True, kw_only=True):
    """The memory that the mapped model takes on a board, by ttnn's allocator, beside the estimate of the trace."""

    board: str
    version: str  # of the library that executed it
    outcome: str  # accepted: all of it ran; else how it ended
    detail: str
    dram_bytes: Count  # the peak, over all banks
    dram_capacity_bytes: Count
    l1_bytes: Count  # the peak of one core, with the buffers of ops
    l1_capacity_bytes: Count
    estimate_bytes: Count  # the peak of the trace
    difference: tuple[tuple[str, int], ...] = ()  # reason -> bytes; their sum is the difference of the two peaks


class BatchesByCapture(Record, frozen=True, kw_only=True):
    """The largest batches that captures of other batches show, or why they show none."""

    captured_batch: int  # by the first capture
    captures: tuple[int, ...] = ()  # the others
    ideal: tuple[int, int] | None = None  # the first fits, one more than the second does not; None: not shown
    eager: tuple[int, int] | None = None
    is_fixed: bool = False  # the model runs with no other size of this dimension
    rows: int = 1  # of the first input that are one sample, as the patches of an image are
    unknown: str = ""  # why captures found no dimension of a batch
    notes: tuple[str, ...] = ()


class Prediction(Record, frozen=True, kw_only=True):
    """The time of a trace by the roofline: each op takes as long as its worst limit, one op after the other."""

    hardware: Hardware
    total_s: float
    by_bound_s: dict[Bound, float]
    fused_s: float  # the same with the traffic of fused kernels: a compiler's target
    ideal_s: float  # everything overlaps, only compulsory bytes move: no implementation is faster
    modules_s: tuple[float, ...]  # with everything inside, in the order of the trace's modules
    signatures: tuple[OpPrediction | None, ...]  # in the order of the trace's signatures; None: no price
    fits: bool  # if each tensor is freed after its last use; false where tensors of unknown size must fit, too
    peak_bytes: Count
    largest_batch: int | None  # fits by this capture; 0: not even one, None: not known
    eager_peak_bytes: Count | None = None  # as Python held tensors in the run; None: not observed
    reserved_peak_bytes: Count | None = None  # the same by the device's caching allocator; None: none, or not simulated
    eager_largest_batch: int | None = None
    largest_batch_at_most: int | None = None  # one more does not fit; above `largest_batch` where growth is not known
    eager_largest_batch_at_most: int | None = None
    captured_batch: int | None = None  # with 1, copies that only larger batches make are not seen
    largest_batch_verified: bool = False  # by captures of both ends: `largest_batch` and one above the other end
    batch_captures: tuple[int, ...] = ()  # the batches that were captured beside `captured_batch`
    largest_batch_unknown: str = ""  # why none is known; "" where one is, and where `unsized` or `ended_early` says it
    notes: tuple[str, ...] = ()
    plan: DevicePlan | None = None  # None: not asked for
    unsized: Count = 0  # tensors of unknown size, such as sparse ones, which are missing in the peak
    ended_early: bool = False  # the forward pass failed: the peak is that of what ran before
    fits_in_memory: Fits | None = None  # `verdict`, as documents have it; None: of an earlier version
    basis: str = ""  # what the times are

    def with_batches(self, found: BatchesByCapture) -> "Prediction":
        """The same with the largest batches of captures, where they show some."""
        notes = (*self.notes, *found.notes)
        if found.ideal is None and not found.is_fixed:
            if self.largest_batch is None:  # so that there is none to be verified
                unknown = found.unknown or self.largest_batch_unknown
                return msgspec.structs.replace(self, largest_batch_unknown=unknown)
            return self._in_samples(found.rows, notes)
        ideal, eager = found.ideal or (None, None), found.eager or (None, None)
        return msgspec.structs.replace(
            self,
            largest_batch=ideal[0],
            largest_batch_at_most=ideal[1],
            eager_largest_batch=eager[0],
            eager_largest_batch_at_most=eager[1],
            captured_batch=found.captured_batch,
            batch_captures=found.captures,
            largest_batch_verified=found.ideal is not None,
            largest_batch_unknown="",
            notes=notes,
        )

    def _in_samples(self, rows: int, notes: tuple[str, ...]) -> "Prediction":
        """The same with the batches of one capture, which counts rows of its first input, in samples of some rows."""
        least, most = self.largest_batch, self.largest_batch_at_most
        eager_least, eager_most = self.eager_largest_batch, self.eager_largest_batch_at_most
        return msgspec.structs.replace(
            self,
            largest_batch=None if least is None else least // rows,
            largest_batch_at_most=None if most is None else most // rows,
            eager_largest_batch=None if eager_least is None else eager_least // rows,
            eager_largest_batch_at_most=None if eager_most is None else eager_most // rows,
            captured_batch=None if self.captured_batch is None else self.captured_batch // rows,
            notes=notes,
        )

    @property
    def verdict(self) -> "Fits":
        """Whether the model fits: at both ends of the peak, at neither, or at the ideal end alone."""
        if self.peak_bytes > self.hardware.memory_bytes:
            return Fits.NO
        if self.unsized or self.ended_early or self.eager_peak_bytes is None:  # a lower bound alone
            return Fits.UNKNOWN
        largest = max(self.eager_peak_bytes, self.reserved_peak_bytes or 0)
        return Fits.YES if largest <= self.hardware.memory_bytes else Fits.BETWEEN


class Collective(Record, frozen=True, kw_only=True):
    """One exchange between devices that a split needs, with its repetitions."""

    kind: str  # all-reduce or all-gather
    after: str  # the op whose result is exchanged
    module: str
    calls: Count
    bytes_each: Count  # sent by each device, by a ring


class TensorParallel(Record, frozen=True, kw_only=True):
    """The trace split over several devices: matmuls in pairs, first by columns, then by rows."""

    devices: int
    flops: Count  # on the device that has most heads
    weight_bytes: Count  # on that device
    bytes_moved: Count  # on each device, unfused
    kv_cache_bytes: Count | None = None  # on the device that has most of it, at the peak; None: an older result
    peak_bytes: Count | None = None  # on that device, each tensor freed after its last use; with optimizer states
    fits: bool | None = None  # None without a hardware, and where tensors of unknown size must fit, too
    memory_bytes: Count | None = None  # of each device; None without a hardware, and in an older result
    collective_bytes: Count  # sent by each device
    collectives: tuple[Collective, ...]
    seconds: float | None = None  # predicted with the exchanges; None without a hardware
    notes: tuple[str, ...] = ()


# --- Costs per op, per module and in total, with the conventions used ---


class Kind(StrEnum):
    """The family an op belongs to; it decides what may be fused and how an op is shown."""

    VIEW = "view"  # free: no data moves
    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    NORMALISATION = "normalisation"
    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    COPY = "copy"
    FACTORY = "factory"
    INDEXING = "indexing"
    SORTING = "sorting"
    SCAN = "scan"
    POOLING = "pooling"
    FFT = "fft"
    LINEAR_ALGEBRA = "linear algebra"
    RANDOM = "random"
    OPTIMISER = "optimiser"
    COLLECTIVE = "collective"
    CUSTOM = "custom"
    UNPRICED = "unpriced"


@singledispatch
def times_log2(halves: int, number: int) -> int:
    """Half of `halves * log2(number)`, the nearest whole number: how Fourier transforms are counted; 0 up to 1.

    The logarithm is a double, the rest exact. A formula that is fitted symbolically registers its own kind of integer.
    """
    return int((halves * Fraction(log2(number)) + 1) // 2) if number > 1 else 0


class Category(StrEnum):
    """What a piece of memory holds."""

    WEIGHTS = "weights"  # parameters, buffers and constants
    KV_CACHE = "kv_cache"  # keys, values and states carried from one step to the next
    ACTIVATIONS = "activations"  # inputs, outputs and everything in between


class Formats(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The number formats that memory is priced in; None: as captured."""

    weights: str | None = None  # of matrices that are multiplied with; biases, norms and embeddings stay
    only: tuple[str, ...] = ()  # patterns of names, layer numbers left open or not: the matrices that have it; (): all
    kv_cache: str | None = None
    activations: str | None = None
    source: str = ""  # where the formats come from: the options, or the checkpoint

    @property
    def is_as_captured(self) -> bool:
        """Whether nothing changes."""
        return self.weights is None and self.kv_cache is None and self.activations is None


class Causal(StrEnum):
    """How attention that declares itself causal is counted."""

    FULL = "full"  # the whole square of scores
    HALF = "half"  # half of it, as kernels that skip the masked half do


class CachePartKind(StrEnum):
    """What a layer keeps from one step to the next."""

    FULL = "full attention"  # all tokens of the sequence, or all that a static cache has room for
    WINDOW = "window"  # the last tokens: of a sliding window, or of a chunk
    CROSS = "cross-attention"  # the tokens of the encoder
    STATE = "state"  # of a size that does not depend on the tokens
    OTHER = "other"  # which dimension counts tokens is not known


class CachePart(Record, frozen=True, kw_only=True):
    """The layers that keep the same number of tokens."""

    kind: CachePartKind
    layers: Count
    tokens: Count | None  # None: a state, or not known
    size_bytes: Count


class CacheMemory(Record, frozen=True, kw_only=True):
    """What a model keeps from one step to the next, without counters of tokens."""

    when: str  # before the step, or after the prompt
    parts: tuple[CachePart, ...]  # largest first
    block_size: int | None = None  # tokens in a block; None: as captured
    head_copies: int = 1  # how often each key and value head is kept: code may expand heads before it caches them
    replaced: int = 0  # tensors that modules keep, where the trace does not say what a step puts in their place

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def single_heads_bytes(self) -> int:
        """What a server takes that keeps each head once."""
        own = (CachePartKind.FULL, CachePartKind.WINDOW)
        return sum(part.size_bytes // (self.head_copies if part.kind in own else 1) for part in self.parts)


class Conventions(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The switches behind every number of a table."""

    multiply_add: int = 2  # what one multiply-add counts as: 2 FLOPs, or 1 when multiply-adds are counted
    causal: Causal = Causal.FULL
    bytes: str = "unfused"  # the level of bytes_read and bytes_written in totals, modules and ops
    phase: str = ""  # prefill, decode or ""
    logits: str = "as captured"  # all, last, or as the model does by itself
    cache_len: int | None = None
    block_size: int | None = None  # tokens in a block of a paged cache; None: the cache is as captured
    tile: int | None = None  # the peak has matrices in whole tiles of this side, as the device stores them
    dtypes: tuple[str, ...] = ()  # of the parameters
    formats: Formats = Formats()
    assumed: tuple[str, ...] = ()  # values that decide which ops run, such as the experts that a router chooses


class Totals(Record, frozen=True, kw_only=True):
    """The sums over the whole trace."""

    flops: Count
    matmul_flops: Count  # matmuls, convolutions and the matmuls inside attention
    bytes_read: Count
    bytes_written: Count
    peak_bytes: Count
    parameter_bytes: Count
    op_calls: Count
    unpriced_calls: Count


class Traffic(Record, frozen=True, kw_only=True):
    """Bytes read and written, by what they hold."""

    read_bytes: dict[Category, Count]
    written_bytes: dict[Category, Count]

    def moved_bytes(self, category: Category) -> int:
        """Bytes of one category, read and written."""
        return self.read_bytes.get(category, 0) + self.written_bytes.get(category, 0)

    @property
    def total_bytes(self) -> int:
        """All bytes moved."""
        return sum(self.read_bytes.values()) + sum(self.written_bytes.values())


class TrafficLevels(Record, frozen=True, kw_only=True):
    """The three levels of traffic, from the most to the least."""

    unfused: Traffic  # each op reads its inputs and writes its outputs
    fused: Traffic  # pointwise chains and attention stay on chip
    compulsory: Traffic  # weights, cache, inputs and outputs once


class SignatureCost(Record, frozen=True, kw_only=True):
    """What one call of one op signature costs."""

    kind: Kind
    flops: Count = 0
    matmul_flops: Count = 0
    bytes_read: Count = 0
    bytes_written: Count = 0
    calls: Count = 0
    reason: str = ""  # why there is no price; "" where there is one


class ModuleCost(Record, frozen=True, kw_only=True):
    """What one module costs: `self_*` by its own ops, the rest with everything inside it."""

    path: str
    class_name: str = msgspec.field(name="class")
    flops: Count
    self_flops: Count
    matmul_flops: Count
    self_matmul_flops: Count
    bytes_read: Count
    self_bytes_read: int
    bytes_written: Count
    self_bytes_written: int
    ops: Count  # op calls with everything inside
    unpriced_calls: Count


class OpCost(Record, frozen=True, kw_only=True):
    """What all calls of one op overload cost together."""

    op: str
    kind: Kind
    calls: Count
    flops: Count
    matmul_flops: Count
    bytes_read: Count
    bytes_written: Count


class GroupCost(Record, frozen=True, kw_only=True):
    """What the modules of one class, or of one depth, cost by their own ops."""

    name: str
    modules: Count
    self_flops: Count
    self_matmul_flops: Count
    self_bytes_read: int
    self_bytes_written: int


class LiveTensor(Record, frozen=True, kw_only=True):
    """A tensor, or several equal ones, live at the peak."""

    name: str  # the parameter or input, or the op that made it
    module: str
    tensor: str  # float32[1, 8]
    size_bytes: Count
    category: Category
    count: Count = 1  # how many equal pieces this row stands for


class Peak(Record, frozen=True, kw_only=True):
    """The moment of peak memory, and the tensors live then; each tensor is freed after its last use."""

    total_bytes: Count
    weights_bytes: Count
    kv_cache_bytes: Count
    activations_bytes: Count
    operation_index: int  # -1: before the first op
    op: str
    module: str
    alive: tuple[LiveTensor, ...]  # largest first
    not_listed_bytes: Count  # what is alive beside the rows of `alive`
    eager_bytes: Count | None = None  # the peak if tensors live as Python held them in the run; None: not observed
    reserved_bytes: Count | None = None  # by a caching allocator, with rounding and gaps; None: not simulated
    padding: dict[Category, int] = {}  # of the peak: what whole tiles add, by what they hold; empty without tiles
    unsized: Count = 0  # tensors of unknown size, such as sparse ones: their bytes are missing


class OptimiserCost(Record, frozen=True, kw_only=True):
    """What one optimiser step adds to a training step, by its textbook form over all trainable parameters."""

    name: str
    parameters: Count
    state_bytes: Count  # moments, in float32 or the larger element type of the parameter
    gradient_bytes: Count
    flops: Count
    bytes_read: Count
    bytes_written: Count


class PeerCount(Record, frozen=True, kw_only=True):
    """The FLOPs that another counter reports for the same model."""

    name: str
    total_flops: Count | None  # None: it failed
    by_op: dict[str, int]  # empty where it reports a total only
    skipped: dict[str, int]  # ops that it reports as not counted, with their calls
    seconds: float
    error: str = ""


class Difference(Record, frozen=True, kw_only=True):
    """One op that two counters see differently."""

    op: str
    ours: int  # matmul FLOPs, which is what counters mean
    theirs: int
    reason: str


class PeerComparison(Record, frozen=True, kw_only=True):
    """One counter, and why its count differs from ours."""

    count: PeerCount
    differences: tuple[Difference, ...]  # largest first; empty where the counter reports a total only
    inferred: str  # for a total only: which of our ops would add up to it


class CostComparison(Record, frozen=True, kw_only=True):
    """Other counters beside our count, a multiply-add as the table's conventions count it."""

    matmul_flops: Count
    counters: tuple[PeerComparison, ...]


class CostTable(Document, frozen=True, kw_only=True):
    """What a trace costs."""

    schema: ClassVar[Schema] = Schema(kind="cost", version=1)
    model: str
    conventions: Conventions
    totals: Totals
    unpriced: dict[str, Count]  # op -> calls
    traffic: TrafficLevels
    peak: Peak
    modules: tuple[ModuleCost, ...]  # in the order of the trace's modules
    ops: tuple[OpCost, ...]  # most FLOPs first
    signatures: tuple[SignatureCost, ...]  # in the order of the trace's signatures
    classes: tuple[GroupCost, ...]
    depths: tuple[GroupCost, ...]
    timeline_bytes: tuple[Count, ...]  # live memory while each op ran
    prediction: Prediction | None = None  # where a hardware was named
    tensor_parallel: TensorParallel | None = None
    optimiser: OptimiserCost | None = None
    notes: tuple[str, ...] = ()
    comparison: CostComparison | None = None  # where other counters were asked for
    cache: CacheMemory | None = None  # None: the model neither gets nor gives a cache

    def check(self) -> None:
        """A prediction has a time for each module and signature, and the peak is at an op of the timeline."""
        in_range("operation_index", [self.peak.operation_index], len(self.timeline_bytes), start=-1)
        if self.prediction is not None:
            same_length(modules=self.modules, modules_s=self.prediction.modules_s)
            same_length(signatures=self.signatures, prediction=self.prediction.signatures)

    def _repr_html_(self) -> str:
        """The totals, and the modules with the most FLOPs, for a notebook."""
        from torchstone.record.notebook import html_table

        totals = self.totals
        title = (
            f"{self.model}: {show_count(totals.flops)} FLOPs, {show_bytes(totals.bytes_read + totals.bytes_written)} "
            f"moved, peak at least {show_bytes(totals.peak_bytes)}"
        )
        largest = sorted(self.modules, key=lambda module: -module.flops)
        rows = [
            (
                module.path or "(root)",
                module.class_name.rpartition(".")[2],
                show_count(module.flops),
                show_bytes(module.bytes_read),
                show_bytes(module.bytes_written),
            )
            for module in largest
        ]
        unpriced = [f"not priced: {op} ({many(calls, 'call')})" for op, calls in self.unpriced.items()]
        return html_table(title, ("module", "class", "FLOPs", "bytes read", "bytes written"), rows, notes=unpriced)


# --- Costs of one model at several sizes ---


class SweepPoint(Record, frozen=True, kw_only=True):
    """What the model costs at one size."""

    value: int
    totals: Totals
    traffic: TrafficLevels
    unpriced: dict[str, Count]  # op -> calls
    predicted_s: float | None  # None: no hardware was named
    fits: bool | None
    eager_peak_bytes: Count | None = None  # None: not observed
    verdict: Fits | None = None
    failure: str = ""  # why the forward pass failed at this size: its numbers are those of the ops before that


class CostSweep(Document, frozen=True, kw_only=True):
    """One model at several values of one size."""

    schema: ClassVar[Schema] = Schema(kind="cost_sweep", version=1)
    model: str
    parameter: str  # seq_len, batch_size, cache_len, image_size, layers
    conventions: Conventions
    points: tuple[SweepPoint, ...]
    hardware: str = ""  # what the times are predicted for
