"""MemoryTimeline -> peaks, the largest consumers, memory by module, and the cost of tile padding."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from torchstone.memory.mlir_text import HOST, explain_padding
from torchstone.memory.study import UNKNOWN, Readings, Study, spans_host
from torchstone.memory.ttnn_report import BEFORE
from torchstone.record.memory import NONE, Allocation, CoreRange, MemoryTimeline, OpCall, TensorType
from torchstone.record.memory_findings import Consumer, CoreUse, LiveSet, ModuleShare, PaddedOp, Peak, TensorUse

# --- The module of an op, from its location ---


_MODULE = re.compile(r"^([A-Za-z_]\w*)\[([^\]]*)\]$")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


class Place(NamedTuple):
    """A module of the model, and the line that called it."""

    path: str
    class_name: str
    source: str  # file and line, "" where unknown


def place_of(location: str) -> Place | None:
    """The innermost module in a location such as `7|Tail[tail]|ReLU[tail.relu]|net.py:106|forward|107|aten__relu`."""
    for text in _STRING.findall(location):
        parts = text.split("|")
        modules = [found for part in parts if (found := _MODULE.match(part)) is not None]
        if modules:
            after = parts[parts.index(modules[-1].group()) + 1 :]
            return Place(modules[-1].group(2), modules[-1].group(1), _source(after))
    return None


def plain_location(location: str) -> str:
    """A location that is one name, without its quotes; any other as it is printed."""
    found = _STRING.fullmatch(location)
    return found.group(1) if found else location


def _source(parts: list[str]) -> str:
    """`net.py:106`, `forward`, `107` -> net.py:107."""
    if len(parts) < 3 or not parts[2].isdecimal():  # noqa: PLR2004 - file, function, line
        return ""
    return f"{parts[0].rpartition(':')[0] or parts[0]}:{parts[2]}"


# --- Peaks: also before deallocates, where the highest reading usually is ---


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


# --- Tensors that stay longer than they are used, where the source states lifetimes ---


class LateFree(NamedTuple):
    """A tensor that was live after its last use."""

    allocation: Allocation
    idle_calls: int  # calls between its last use and its end
    is_freed: bool


_UPLOADS = ("ttnn.from_torch", "ttnn.to_device", "ttnn.as_tensor", BEFORE)


def late_frees(study: Study) -> tuple[LateFree, ...]:
    """Tensors that ops made and that stayed after their last use, those that cost most bank bytes times calls first."""
    timeline = study.timeline
    programs = {op for op in range(len(timeline.ops)) if study.name_of(op).startswith("program of")}
    found = []
    for one in timeline.allocations:
        if one.last_use == NONE or one.owner.startswith(_UPLOADS):
            continue
        idle = [op for op in range(one.last_use + 1, min(one.end_op, len(timeline.ops))) if op not in programs]
        frees = any(study.name_of(op).startswith("ttnn.deallocate") for op in idle[:1])
        if len(idle) > (1 if frees else 0):
            found.append(LateFree(one, len(idle), one.end_op < len(timeline.ops)))
    return tuple(sorted(found, key=lambda late: (-late.idle_calls * late.allocation.bank_bytes, late.allocation.owner)))


# --- L1 of each core, where the source states cores ---


def core_uses(study: Study, op: int) -> tuple[CoreUse, ...]:
    """What lies in the L1 of each core before an op, row by row; empty where the grid is unknown."""
    timeline = study.timeline
    if timeline.core_grid is None:
        return ()
    columns, rows = timeline.core_grid
    tensors, programs = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    everywhere = 0
    for one in timeline.allocations:
        if one.memory == "L1" and one.from_op <= op < one.end_op:
            everywhere += 0 if one.cores else one.bank_bytes
            for core in _cores_in(one.cores):
                tensors[core] += one.bank_bytes
    for buffer in timeline.core_buffers:
        if buffer.op == op:
            for core in _cores_in(buffer.cores):
                programs[core] += buffer.bank_bytes
    return tuple(
        CoreUse(x=x, y=y, tensor_bytes=everywhere + tensors[x, y], program_bytes=programs[x, y])
        for y in range(rows)
        for x in range(columns)
    )


def _cores_in(ranges: tuple[CoreRange, ...]) -> Iterator[tuple[int, int]]:
    for one in ranges:
        yield from product(range(one.left, one.right + 1), range(one.top, one.bottom + 1))


def busy_ops(study: Study, *, limit: int = 300) -> tuple[int, ...]:
    """The ops before which L1 differs from that before the last one, the fullest ones where there are too many."""
    timeline = study.timeline
    total = max((name for name in study.readings if name.startswith("L1")), key=len, default="")
    if timeline.core_grid is None or not total:
        return ()
    changed = {one.op for one in timeline.core_buffers}
    changed |= {op for one in timeline.allocations if one.memory == "L1" for op in (one.from_op, one.end_op)}
    used = study.readings[total].allocated
    known = [op for op in changed if op < len(used)]
    return tuple(sorted(sorted(known, key=lambda op: -used[op])[:limit]))


def tensor_uses(study: Study) -> tuple[TensorUse, ...]:
    """Each tensor that a report names, in the order of its first op."""
    producers: dict[str, int] = {}
    consumers: dict[str, list[int]] = {}
    types: dict[str, int] = {}
    for op in range(len(study.timeline.ops)):
        call = study.call(op)
        if call is None:
            continue
        for value, row in zip(call.operands, call.operand_types, strict=False):
            types.setdefault(value, row)
            if call.name.endswith("deallocate"):
                continue  # it frees the tensor without reading it
            consumers.setdefault(value, []).append(op)
        for value, row in zip(call.results, call.result_types, strict=False):
            if value not in call.operands:  # an op that works in place returns what it was given
                types[value] = row
                producers.setdefault(value, op)
    return tuple(
        TensorUse(
            value=value,
            type=row,
            producer=producers.get(value, NONE),
            consumers=tuple(dict.fromkeys(consumers.get(value, ()))),
        )
        for value, row in types.items()
    )


# --- Largest consumers ---


def top_consumers(study: Study, memory: str, *, limit: int = 20) -> tuple[Consumer, ...]:
    """The distinct ops with the largest measured effect in one memory."""
    effects, with_host = study.readings[memory].effects, spans_host(study.timeline)
    first: dict[tuple[int, int], int] = {}
    runs: dict[tuple[int, int], int] = {}
    for op, effect in enumerate(effects):
        if effect > 0 and effect != UNKNOWN and not with_host[op]:
            key = (study.calls[op] if study.calls[op] != NONE else -2 - op, effect)
            first.setdefault(key, op)
            runs[key] = runs.get(key, 0) + 1
    best = sorted(first.items(), key=lambda item: (-item[0][1], item[1]))[:limit]
    return tuple(
        Consumer(
            op=op,
            runs=runs[key],
            memory=memory,
            effect_ticks=key[1],
            expected_bytes=expected_bank_bytes(study, study.call(op), memory),
        )
        for key, op in best
    )


def expected_bank_bytes(study: Study, call: OpCall | None, memory: str) -> int | None:
    """The expected bytes of an op's results in each bank of a memory; None where their types are incomplete."""
    if call is None:
        return None
    total = 0
    for row in call.result_types:
        buffer = study.timeline.types[row].buffer
        if buffer is None:
            return None
        if buffer.memory == memory != HOST:
            total += study.bank_bytes(buffer)
    return total


# --- Memory by module, where locations carry module paths ---


def module_shares(study: Study, peak: LiveSet | None) -> tuple[ModuleShare, ...]:
    """Each module with its ops in one pass of each graph and its live bytes at the peak; largest at the peak first."""
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
    live = _live_bytes(study, places, peak)
    shares = (
        ModuleShare(
            path=place.path, class_name=place.class_name, ops=ops[place], made_bytes=made[place], peak_bytes=live[place]
        )
        for place in ops
    )
    return tuple(sorted(shares, key=lambda share: (-share.peak_bytes, -share.made_bytes, share.path)))


def _live_bytes(study: Study, places: list[Place | None], peak: LiveSet | None) -> "Counter[Place]":
    live: Counter[Place] = Counter()
    for buffer in peak.buffers if peak else ():
        place = places[study.calls[buffer.op]] if buffer.op != NONE else None
        if place is not None:
            live[Place(place.path, place.class_name, "")] += buffer.padded_bytes
    return live


def _result_bytes(study: Study, op: int) -> int:
    call = study.call(op)
    buffers = (study.timeline.types[row].buffer for row in (call.result_types if call else ()))
    return sum(buffer.padded_bytes for buffer in buffers if buffer is not None and buffer.memory != HOST)


# --- Tile padding: the ops whose results lose most, by absolute size ---


def padded_ops(study: Study) -> tuple[PaddedOp, ...]:
    """Every distinct op with padding, the one that loses most first."""
    first: dict[int, int] = {}
    runs: dict[int, int] = {}
    for op, call in enumerate(study.calls):
        if call != NONE:
            first.setdefault(call, op)
            runs[call] = runs.get(call, 0) + 1
    types = study.timeline.types
    found = (_padded(study.timeline.calls[call], types, op=op, runs=runs[call]) for call, op in first.items())
    return tuple(sorted((one for one in found if one), key=lambda one: (-one.overhead_bytes, one.op)))


def _padded(call: OpCall, types: tuple[TensorType, ...], *, op: int, runs: int) -> PaddedOp | None:
    if call.name.endswith(".load_cached"):
        return None  # the const-eval allocated them: they are the results of its ops
    sized = [
        (row, types[row].logical_bytes, buffer.padded_bytes)
        for row in call.result_types
        if (buffer := types[row].buffer) is not None and buffer.memory != HOST
    ]
    known = [(row, logical, padded) for row, logical, padded in sized if logical is not None]
    logical, padded = sum(one[1] for one in known), sum(one[2] for one in known)
    if padded <= logical:
        return None
    worst = max(known, key=lambda one: one[2] - one[1])[0]
    return PaddedOp(
        op=op,
        runs=runs,
        type=worst,
        logical_bytes=logical,
        padded_bytes=padded,
        reason=explain_padding(types[worst]),
    )
