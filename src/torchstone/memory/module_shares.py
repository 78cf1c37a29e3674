"""MemoryTimeline -> memory by module, where locations carry module paths."""

from collections import Counter

from torchstone.memory.locations import Place, place_of
from torchstone.memory.mlir.tensor_type import HOST
from torchstone.memory.study import Study
from torchstone.record.memory import NONE
from torchstone.record.memory_findings import LiveSet, ModuleShare


def module_shares(study: Study, peak: LiveSet | None) -> tuple[ModuleShare, ...]:
    """Each module with its ops in one pass of each graph and what it held at the peak; largest at the peak first."""
    places = [place_of(call.location) for call in study.timeline.calls]
    ops: Counter[Place] = Counter()
    made: Counter[Place] = Counter()
    for graph in study.timeline.graphs:
        run = study.timeline.programs[graph.runs[-1]]
        for op in range(run.first_op, run.end_op):
            place = places[study.calls[op]] if study.calls[op] != NONE else None
            if place is not None:
                key = Place(place.path, place.class_name, "")
                ops[key] += 1
                made[key] += _result_bytes(study, op)
    held = _held_at(study, places, peak)
    shares = (
        ModuleShare(
            path=place.path, class_name=place.class_name, ops=ops[place], made_bytes=made[place], peak_bytes=held[place]
        )
        for place in ops
    )
    return tuple(sorted(shares, key=lambda share: (-share.peak_bytes, -share.made_bytes, share.path)))


def _held_at(study: Study, places: list[Place | None], peak: LiveSet | None) -> "Counter[Place]":
    held: Counter[Place] = Counter()
    for buffer in peak.buffers if peak else ():
        place = places[study.calls[buffer.op]] if buffer.op != NONE else None
        if place is not None:
            held[Place(place.path, place.class_name, "")] += buffer.padded_bytes
    return held


def _result_bytes(study: Study, op: int) -> int:
    call = study.call(op)
    buffers = (study.timeline.types[row].buffer for row in (call.result_types if call else ()))
    return sum(buffer.padded_bytes for buffer in buffers if buffer is not None and buffer.memory != HOST)
