"""Memory that PyTorch recorded (allocator snapshots, profiler traces) -> MemoryTimeline.

A snapshot of the caching allocator lists every allocation and release with its Python stack; a profiler trace has the
same as events between its ops. Both state addresses and sizes in bytes, so a tick of the timeline is one byte, and a
row is one event. Snapshots are pickles: they are read by an unpickler that makes plain containers and refuses the rest.
"""

import gzip
import io
import json
import math
import pickle  # read with an unpickler that refuses every class and function
import zlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Never

from torchstone.errors import InputError, UnreadableFileError
from torchstone.memory.graphs import OpenRun, close_run, freeze_run
from torchstone.memory.pickle_limits import problem_of_pickle
from torchstone.memory.timeline_builder import Scale, TimelineBuilder
from torchstone.record.files import open_regular, parse_json, read_unpacked
from torchstone.record.memory import (
    NONE,
    Allocation,
    Buffer,
    Evidence,
    Failure,
    FailureKind,
    Graph,
    MemoryState,
    MemoryTimeline,
    OpCall,
    Role,
    TensorType,
)
from torchstone.units import show_bytes

SNAPSHOT_DIALECT, TRACE_DIALECT = "torch-snapshot", "torch-profiler"
_GZIP, _PICKLE = b"\x1f\x8b", b"\x80"
_SAMPLE_BYTES = 1 << 16
_MAX_BYTES = 1 << 50
_PROTOCOLS = range(2, 6)
_BEFORE = "allocated before the recording began"
_ACTIVE = ("active_allocated", "active_awaiting_free", "active_pending_free")
_LIBRARY = ("/torch/", "torch/", "<frozen", "??", "<built-in", "nn.Module")

Json = Mapping[str, object]


@dataclass(slots=True)
class _Event:
    """A buffer that is allocated (size above 0) or freed."""

    memory: str
    address: int
    size: int
    name: str
    location: str = ""
    allocated: int | None = None  # on the device before the event, where the source states it
    reserved: int = 0  # by the allocator, 0 where that is not known
    largest_free: int = 0
    failure: Failure | None = None


@dataclass(slots=True)
class _Recording:
    """The events of a recording, and the buffers that were there before."""

    events: list[_Event] = field(default_factory=list)
    before: list[tuple[str, int, int, str]] = field(default_factory=list)  # memory, address, size, owner


def is_torch_file(path: Path) -> bool:
    """Whether a file is a snapshot or a profiler trace of PyTorch, by its first bytes."""
    with open_regular(path) as file:
        start = file.read(_SAMPLE_BYTES)
    if start.startswith(_GZIP):
        try:
            with gzip.open(path) as unpacked:
                start = unpacked.read(_SAMPLE_BYTES)
        except (OSError, EOFError, zlib.error):
            return False
    is_pickle = start[:1] == _PICKLE and len(start) > 1 and start[1] in _PROTOCOLS
    return is_pickle or (start.lstrip()[:1] == b"{" and (b'"traceEvents"' in start or b'"deviceProperties"' in start))


def read_torch_file(path: Path) -> MemoryTimeline:
    """The timeline of a snapshot or trace; raises UnreadableFileError for a damaged file, InputError for another."""
    data = read_unpacked(path)
    if data[:1] == _PICKLE:
        return _timeline(_snapshot_recording(_unpickled(data, path), path), str(path), SNAPSHOT_DIALECT)
    document: object = parse_json(data, origin=f"{path}, which looks like a trace of torch.profiler,")
    events = document.get("traceEvents") if isinstance(document, dict) else None
    recording = _trace_recording([one for one in events if isinstance(one, dict)] if isinstance(events, list) else [])
    if not recording.events:
        msg = f"{path} has no memory events; record the profile with profile_memory=True"
        raise InputError(msg)
    return _timeline(recording, str(path), TRACE_DIALECT)


# --- Snapshots ---


class _PlainUnpickler(pickle.Unpickler):
    """Makes dicts, lists, tuples, texts and numbers; a pickle that names anything else is refused."""

    def find_class(self, module: str, name: str) -> Never:
        """Refuse every class and function."""
        msg = f"it refers to {module}.{name}, and only plain containers are read"
        raise pickle.UnpicklingError(msg)

    def persistent_load(self, pid: object) -> Never:
        """Refuse references to other places."""
        msg = f"it refers to an object outside of it ({pid!r:.40}), and only plain containers are read"
        raise pickle.UnpicklingError(msg)


def _unpickled(data: bytes, path: Path) -> Json:
    if problem := problem_of_pickle(data):
        msg = f"{path} is a damaged pickle: {problem}"
        raise UnreadableFileError(msg)
    try:
        document: object = _PlainUnpickler(io.BytesIO(data)).load()
    except pickle.UnpicklingError as error:
        msg = f"{path} is a pickle that is not read: {error}"
        raise InputError(msg) from error
    # a damaged pickle fails in whatever opcode the damage is: every error means the same here
    except (EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        msg = f"{path} is a damaged pickle: {error}"
        raise UnreadableFileError(msg) from error
    if not isinstance(document, dict) or not isinstance(document.get("segments"), list):
        msg = f"{path} is a pickle without `segments`; give one that torch.cuda.memory._dump_snapshot wrote"
        raise InputError(msg)
    return document


class _Segments:
    """The memory that the allocator reserved, with the largest free block of each part."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._blocks: list[tuple[int, int]] = []
        self._largest: dict[int, int] = {}
        self.reserved = 0

    def add(self, address: int, size: int) -> None:
        if address not in self._sizes:
            insort(self._starts, address)
            self._sizes[address] = size
            self.reserved += size
            self._measure(address)

    def remove(self, address: int) -> None:
        size = self._sizes.pop(address, None)
        if size is not None:
            del self._starts[bisect_left(self._starts, address)]
            self._largest.pop(address, None)
            self.reserved -= size

    def put(self, address: int, size: int) -> None:
        insort(self._blocks, (address, size))
        self._touch(address)

    def free(self, address: int) -> None:
        at = bisect_left(self._blocks, (address, 0))
        if at < len(self._blocks) and self._blocks[at][0] == address:
            del self._blocks[at]
            self._touch(address)

    def _touch(self, address: int) -> None:
        at = bisect_right(self._starts, address) - 1
        if at >= 0:
            self._measure(self._starts[at])

    def _measure(self, segment: int) -> None:
        end = segment + self._sizes[segment]
        at = bisect_left(self._blocks, (segment, 0))
        largest, free_from = 0, segment
        while at < len(self._blocks) and self._blocks[at][0] < end:
            start, size = self._blocks[at]
            largest, free_from = max(largest, start - free_from), start + size
            at += 1
        self._largest[segment] = max(largest, end - free_from)

    @property
    def largest_free(self) -> int:
        return max(self._largest.values(), default=0)


def _snapshot_recording(document: Json, path: Path) -> _Recording:
    segments = [one for one in _list(document.get("segments")) if isinstance(one, dict)]
    traces = _list(document.get("device_traces"))
    recording = _Recording()
    for device, trace in enumerate(traces):
        entries = [one for one in _list(trace) if isinstance(one, dict)]
        own = [one for one in segments if _int(one.get("device")) == device]
        if entries:
            _follow_device(recording, device, entries, own)
    if not recording.events:
        msg = (
            f"{path} has no history of allocations; call torch.cuda.memory._record_memory_history() before the model "
            "runs, then torch.cuda.memory._dump_snapshot(FILE)"
        )
        raise InputError(msg)
    return recording


def _follow_device(recording: _Recording, device: int, entries: Sequence[Json], segments: Sequence[Json]) -> None:
    memory = f"GPU {device}"
    actions = {str(one.get("action")) for one in entries}
    ends = "free_completed" if "free_completed" in actions else "free_requested"
    reserved, blocks = _before(entries, segments, ends)
    for address, size, owner in blocks:
        recording.before.append((memory, address, size, owner))
        reserved.put(address, size)
    for entry in entries:
        action, address, size = str(str(entry.get("action"))), _int(entry.get("addr")), _size(entry.get("size"))
        if action in {"segment_alloc", "segment_map"}:
            reserved.add(address, size)
            continue
        if action in {"segment_free", "segment_unmap"}:
            reserved.remove(address)
            continue
        if action not in {"alloc", ends, "oom"}:
            continue
        name, location = _frame(_list(entry.get("frames")))
        made = _Event(
            memory=memory,
            address=address,
            size=size if action == "alloc" else -size,
            name=name if action == "alloc" else f"free, {name}" if name else "free",
            location=location,
            reserved=reserved.reserved,
            largest_free=reserved.largest_free,
        )
        if action == "oom":
            made.size, made.name = 0, f"allocation that failed, {name}"
            made.failure = _failure(entry, memory, size, reserved)
        recording.events.append(made)
        if action == "alloc":
            reserved.put(address, size)
        elif action == ends:
            reserved.free(address)


def _before(
    entries: Sequence[Json], segments: Sequence[Json], ends: str
) -> tuple[_Segments, list[tuple[int, int, str]]]:
    """Reserved memory and buffers before the first entry: those after the last, with the entries undone."""
    sizes = {_int(one.get("address")): _size(one.get("total_size")) for one in segments}
    live = {address: (size, owner) for one in segments for address, size, owner in _active_blocks(one)}
    for entry in reversed(entries):
        action, address, size = str(entry.get("action")), _int(entry.get("addr")), _size(entry.get("size"))
        if action in {"segment_alloc", "segment_map"}:
            sizes.pop(address, None)
        elif action in {"segment_free", "segment_unmap"}:
            sizes[address] = size
        elif action == "alloc":
            live.pop(address, None)
        elif action == ends:
            live[address] = size, _BEFORE
    reserved = _Segments()
    for address, size in sizes.items():
        reserved.add(address, size)
    return reserved, [(address, size, owner) for address, (size, owner) in live.items()]


def _active_blocks(segment: Json) -> Iterator[tuple[int, int, str]]:
    at = _int(segment.get("address"))
    for block in _list(segment.get("blocks")):
        if isinstance(block, dict):
            at, size = _int(block.get("address"), at), _size(block.get("size"))
            if block.get("state") in _ACTIVE:
                yield at, size, " ".join(_frame(_list(block.get("frames")))).strip() or _BEFORE
            at += size


def _failure(entry: Json, memory: str, size: int, reserved: _Segments) -> Failure:
    free = _size(entry.get("device_free"))
    return Failure(
        kind=FailureKind.OUT_OF_MEMORY,
        op=NONE,
        line=0,
        message=f"Out of memory: tried to allocate {show_bytes(size)}, {show_bytes(free)} is free on the device",
        memory=memory,
        banks=1,
        buffer_bytes=size,
        needed_bytes=size,
        free_bytes=free,
        largest_block_bytes=max(reserved.largest_free, free),
    )


def _frame(frames: Iterable[object]) -> tuple[str, str]:
    """Function and source line of the innermost frame that is not PyTorch's own."""
    found = [one for one in frames if isinstance(one, dict)]
    own = [one for one in found if not any(part in str(one.get("filename", "")) for part in _LIBRARY)]
    chosen = next(iter(own or found), None)
    if chosen is None:
        return "", ""
    line = _int(chosen.get("line"))
    return str(chosen.get("name", "")), f"{chosen.get('filename', '')}:{line}" if line else ""


# --- Profiler traces ---


def _trace_recording(events: Sequence[Json]) -> _Recording:
    recording = _Recording()
    memory = [one for one in events if one.get("name") == "[memory]" and isinstance(one.get("args"), dict)]
    spans = sorted((one for one in events if one.get("ph") == "X" and "dur" in one), key=_start)
    threads: dict[str, list[Json]] = {}
    for one in spans:
        threads.setdefault(str(one.get("tid")), []).append(one)
    by_thread: dict[str, list[Json]] = {}
    for one in sorted(memory, key=_start):
        by_thread.setdefault(str(one.get("tid")), []).append(one)
    placed = [
        (_start(one), number, one, inside)
        for number, (thread, mine) in enumerate(by_thread.items())
        for one, inside in _enclosing(mine, threads.get(thread, []))
    ]
    live: dict[tuple[str, int], int] = {}
    for _, _, one, inside in sorted(placed, key=lambda found: found[:2]):
        made = _memory_event(one, inside)
        key = made.memory, made.address
        if made.size > 0:
            live[key] = made.size
        elif live.pop(key, None) is None:
            recording.before.append((made.memory, made.address, -made.size, _BEFORE))
        recording.events.append(made)
    return recording


def _enclosing(events: Sequence[Json], spans: Sequence[Json]) -> Iterator[tuple[Json, list[Json]]]:
    """Each event with the spans it lies in, outermost first."""
    stack: list[Json] = []
    at = 0
    for event in events:
        moment = _start(event)
        while at < len(spans) and _start(spans[at]) <= moment:
            stack.append(spans[at])
            at += 1
        stack = [one for one in stack if _start(one) + _float(one.get("dur")) >= moment]
        yield event, stack.copy()


def _memory_event(event: Json, inside: Sequence[Json]) -> _Event:
    values = event["args"]
    assert isinstance(values, dict)  # noqa: S101 - chosen by it
    size, device = _int(values.get("Bytes")), _int(values.get("Device Id"))
    ops = [str(one.get("name", "")) for one in inside if one.get("cat") == "cpu_op"]
    python = [str(one.get("name", "")) for one in inside if one.get("cat") == "python_function"]
    own = [name for name in python if not name.startswith(_LIBRARY) and not any(part in name for part in _LIBRARY)]
    name = ops[-1] if ops else "outside of an op"
    total = values.get("Total Allocated")
    return _Event(
        memory="CPU" if _int(values.get("Device Type")) == 0 else f"GPU {max(device, 0)}",
        address=_int(values.get("Addr")),
        size=size,
        name=name if size > 0 else f"free, {name}",
        location=own[-1] if own else "",
        allocated=None if total is None else _int(total) - size,
        reserved=_int(values.get("Total Reserved")),
    )


# --- The timeline ---


def _timeline(recording: _Recording, source: str, dialect: str) -> MemoryTimeline:
    events = recording.events
    if any(abs(size) >= _MAX_BYTES for size in (*(one.size for one in events), *(one[2] for one in recording.before))):
        msg = f"{source} has a block of a petabyte or more, which no memory holds; record it again"
        raise UnreadableFileError(msg)
    measured = _measured(recording)
    builder = TimelineBuilder()
    builder.start("recording", 1)
    latest: dict[str, MemoryState] = {}
    known: dict[tuple[str, MemoryState], int] = {}
    memories = list(dict.fromkeys([one.memory for one in events]))
    for memory in memories:
        first = next(number for number, one in enumerate(events) if one.memory == memory)
        latest[memory] = _state(events[first], measured[first])
    types: dict[TensorType, int] = {}
    for row, event in enumerate(events):
        latest[event.memory] = _state(event, measured[row])
        builder.calls.append(_call(event, types))
        builder.add_op(row, row + 1)
        builder.open_block(row, row + 1)
        for memory in memories:
            slot, state = builder.slot(memory), latest[memory]
            if (memory, state) not in known:
                known[memory, state] = builder.add_state(slot, state)
            builder.read_state(slot, known[memory, state])
        builder.close_block()
        if event.failure is not None:
            builder.fail(event.failure)
    allocations = tuple(_allocations(recording, types))
    run = OpenRun("recording", Role.FORWARD, NONE, NONE, 0, 1)
    close_run(run, end_op=len(events), line=len(events), complete=True)
    count = len(events)
    evidence = Evidence(lines=count, runtime_lines=count, op_lines=count, op_blocks=count)
    scale = Scale(ticks_per_mib=1 << 20, row_alignment_bytes=1)
    built = builder.build(dialect=dialect, types=list(types), modules=[], evidence=evidence, scale=scale)
    return MemoryTimeline(
        dialect=dialect,
        source=source,
        ticks_per_mib=1 << 20,
        row_alignment_bytes=1,
        memories=built.memories,
        ops=built.ops,
        calls=built.calls,
        types=tuple(types),
        programs=(freeze_run(run, pass_index=0, graph=0),),
        graphs=(Graph(name="recording", runs=(0,)),),
        failures=built.failures,
        evidence=evidence,
        allocations=allocations,
    )


def _measured(recording: _Recording) -> list[int]:
    """Bytes allocated before each event: as stated, but never below what is known to be there.

    A profiler counts from the moment it starts, so buffers that were there before are missing from its totals.
    """
    live: dict[str, int] = {}
    for memory, _, size, _ in recording.before:
        live[memory] = live.get(memory, 0) + size
    sums, missing = [], dict.fromkeys(live, 0)
    for event in recording.events:
        now = live.setdefault(event.memory, 0)
        sums.append(now)
        if event.allocated is not None:
            missing[event.memory] = max(missing.get(event.memory, 0), now - event.allocated)
        live[event.memory] = now + event.size
    return [
        known if event.allocated is None else event.allocated + missing.get(event.memory, 0)
        for event, known in zip(recording.events, sums, strict=True)
    ]


def _state(event: _Event, allocated: int) -> MemoryState:
    free = max(event.reserved - allocated, 0)
    largest = event.largest_free or free
    return MemoryState(
        banks=1, capacity=event.reserved, allocated=allocated, free=free, largest_free=min(largest, free)
    )


def _call(event: _Event, types: dict[TensorType, int]) -> OpCall:
    value = f"%{event.address:x}"
    row = _type_row(event.memory, abs(event.size), types)
    is_made = event.size > 0
    return OpCall(
        name=event.name,
        results=(value,) if is_made else (),
        operands=() if is_made or event.failure else (value,),
        result_types=(row,) if is_made else (),
        operand_types=() if is_made or event.failure else (row,),
        location=json.dumps(event.location) if event.location else "unknown",
    )


def _type_row(memory: str, size: int, types: dict[TensorType, int]) -> int:
    buffer = Buffer(
        memory=memory, dtype="", tiled=False, sharding="", padded_bytes=size, page_bytes=max(size, 1), pages=1
    )
    return types.setdefault(TensorType(text=f"{size} bytes", buffer=buffer), len(types))


def _allocations(recording: _Recording, types: dict[TensorType, int]) -> Iterator[Allocation]:
    end = len(recording.events)
    live: dict[tuple[str, int], tuple[int, int, str]] = {
        (memory, address): (0, size, owner) for memory, address, size, owner in recording.before
    }
    for row, event in enumerate(recording.events):
        key = event.memory, event.address
        if event.size < 0 and key in live:
            yield _allocation(key, live.pop(key), row + 1, types)
        elif event.size > 0:
            if key in live:  # its release is missing from the recording
                yield _allocation(key, live.pop(key), row, types)
            owner = f"{event.name} {event.location}".strip()
            live[key] = row + 1, event.size, owner
    for key, found in live.items():
        yield _allocation(key, found, end, types)


def _allocation(
    key: tuple[str, int], found: tuple[int, int, str], end: int, types: dict[TensorType, int]
) -> Allocation:
    (memory, address), (since, size, owner) = key, found
    return Allocation(
        memory=memory,
        address=address,
        bank_bytes=size,
        type=_type_row(memory, size, types),
        owner=owner,
        value=f"%{address:x}",
        made_by=since - 1 if since else NONE,
        from_op=since,
        end_op=end,
    )


def _start(event: Json) -> float:
    return _float(event.get("ts"))


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _int(value: object, default: int = 0) -> int:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else default


def _size(value: object) -> int:
    return max(0, _int(value))


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []
