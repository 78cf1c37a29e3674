"""MemoryTimeline -> the highest reading of each memory; rows of deallocates count, it usually stands there."""

from torchstone.memory.readings import Readings
from torchstone.memory.study import Study
from torchstone.record.memory import NONE, MemoryTimeline
from torchstone.record.memory_findings import Peak


def find_peaks(study: Study) -> tuple[Peak, ...]:
    """The first highest reading of every memory that has one."""
    found = (_find_peak(study.timeline, readings) for readings in study.readings.values())
    return tuple(peak for peak in found if peak is not None)


def _find_peak(timeline: MemoryTimeline, readings: Readings) -> Peak | None:
    highest = max(readings.allocated, default=NONE)
    peak = None
    if highest != NONE:
        op = readings.allocated.index(highest)
        state = readings.of_op(op)
        peak = None if state is None else Peak(memory=readings.name, state=state, op=op)
    for row, mark in enumerate(timeline.marks):
        state = readings.state(mark.snapshot)
        if state is not None and (peak is None or state.allocated > peak.state.allocated):
            peak = Peak(memory=readings.name, state=state, op=NONE, mark=row)
    return peak
