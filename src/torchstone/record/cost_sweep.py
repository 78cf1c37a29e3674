"""What one model costs at several sizes."""

from torchstone.record.base import Record
from torchstone.record.cost import Conventions, Totals, TrafficLevels


class SweepPoint(Record, frozen=True, kw_only=True):
    """What the model costs at one size."""

    value: int
    totals: Totals
    traffic: TrafficLevels
    unpriced: dict[str, int]  # op -> calls
    predicted_s: float | None  # None: no hardware was named
    fits: bool | None


class CostSweep(Record, frozen=True, kw_only=True):
    """One model at several values of one size."""

    model: str
    parameter: str  # seq_len, batch_size, cache_len, image_size, layers
    conventions: Conventions
    points: tuple[SweepPoint, ...]
    hardware: str = ""  # what the times are predicted for
