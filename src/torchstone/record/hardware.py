"""What a device can do at best, and the time that a trace would take on it by that."""

from enum import StrEnum

from torchstone.record.base import Record


class Hardware(Record, frozen=True, kw_only=True):
    """The limits of a device or of several that work as one."""

    name: str
    title: str
    peak_flops: dict[str, float]  # FLOP/s of matrix multiplication by element type
    vector_flops: float  # FLOP/s of everything else
    memory_bytes: int
    memory_bytes_per_s: float
    launch_s: float  # the least time that an op takes
    source: str  # where the numbers come from
    link_bytes_per_s: float | None = None  # to the other devices; None: not known
    devices: int = 1
    note: str = ""


class Bound(StrEnum):
    """What an op waits for."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LAUNCH = "launch"


class OpPrediction(Record, frozen=True, kw_only=True):
    """How long one call of a signature takes at best, and why."""

    seconds: float
    bound: Bound
    intensity: float | None  # FLOPs per byte; None where no byte moves


class Prediction(Record, frozen=True, kw_only=True):
    """The time of a trace by the roofline: each op takes as long as its worst limit, one op after the other."""

    hardware: Hardware
    total_s: float
    by_bound_s: dict[Bound, float]
    fused_s: float  # the same with the traffic of fused kernels: a compiler's target
    ideal_s: float  # everything overlaps, only compulsory bytes move: no implementation is faster
    modules_s: tuple[float, ...]  # with everything inside, in the order of the trace's modules
    signatures: tuple[OpPrediction | None, ...]  # in the order of the trace's signatures; None: no price
    fits: bool
    peak_bytes: int
    largest_batch: int | None  # estimate, in units of the captured batch size; None: not even one, or not known
    notes: tuple[str, ...] = ()


class Collective(Record, frozen=True, kw_only=True):
    """One exchange between devices that a split needs, with its repetitions."""

    kind: str  # all-reduce or all-gather
    after: str  # the op whose result is exchanged
    module: str
    calls: int
    bytes_each: int  # sent by each device, by a ring


class TensorParallel(Record, frozen=True, kw_only=True):
    """The trace split over several devices: matmuls in pairs, first by columns, then by rows."""

    devices: int
    flops: int  # on each device
    weight_bytes: int  # on each device
    bytes_moved: int  # on each device, unfused
    collective_bytes: int  # sent by each device
    collectives: tuple[Collective, ...]
    seconds: float | None = None  # predicted with the exchanges; None without a hardware
    notes: tuple[str, ...] = ()
