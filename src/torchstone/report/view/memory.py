"""What the memory sections show: a study of a timeline, with every column computed once."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path

from torchstone.memory.folder import TIMELINE_SUFFIX, find_folder, read_timeline
from torchstone.memory.ledger import follow_all, live_at_peak
from torchstone.memory.study import UNKNOWN, Readings, Study, tick_bytes
from torchstone.memory.usage import find_peaks, place_of
from torchstone.record.memory import NONE, MemoryTimeline, ProgramRun, Role
from torchstone.record.memory_findings import LiveBuffer, LiveSet, Peak
from torchstone.report.section import ReportFolder, Shown
from torchstone.units import show_bytes

FILES = (f"*{TIMELINE_SUFFIX}",)
DESCRIBED_OPS = 20_000  # distinct op texts up to which the buffers alive before each op are named
_NAMED_BUFFERS = 3


class MemoryView:
    """One timeline, ready to be shown."""

    def __init__(self, timeline: MemoryTimeline) -> None:
        self.study = Study(timeline)
        self.timeline = timeline

    @cached_property
    def peaks(self) -> dict[str, Peak]:
        """By memory."""
        return {peak.memory: peak for peak in find_peaks(self.study)}

    @cached_property
    def used(self) -> tuple[str, ...]:
        """The memories in which anything was ever allocated."""
        return tuple(name for name, peak in self.peaks.items() if peak.state.allocated > 0)

    def bytes_of(self, ticks: int) -> int:
        """Ticks per bank as bytes."""
        return tick_bytes(self.timeline, ticks)

    # columns, one value per op

    def allocated(self, memory: str) -> list[int | None]:
        """Bytes per bank before each op."""
        return self._by_memory["allocated", memory]

    def effects(self, memory: str) -> list[int | None]:
        """Bytes per bank that each op changed."""
        return self._by_memory["effects", memory]

    def fragmentation(self, memory: str) -> list[int | None]:
        """The share of free space outside the largest block before each op, in percent."""
        return self._by_memory["fragmentation", memory]

    @cached_property
    def _by_memory(self) -> dict[tuple[str, str], list[int | None]]:
        columns = {}
        for memory in self.used:
            readings: Readings = self.study.readings[memory]
            columns["allocated", memory] = self._in_bytes(readings.allocated, unknown=NONE)
            columns["effects", memory] = self._in_bytes(readings.effects, unknown=UNKNOWN)
            pairs = zip(readings.free, readings.largest_free, strict=True)
            columns["fragmentation", memory] = [
                None if free <= 0 else round(100 * (1 - largest / free)) for free, largest in pairs
            ]
        return columns

    def _in_bytes(self, ticks: Sequence[int], *, unknown: int) -> list[int | None]:
        known: dict[int, int | None] = {tick: self.bytes_of(tick) for tick in set(ticks)}
        known[unknown] = None
        return [known[tick] for tick in ticks]

    @cached_property
    def texts(self) -> list[str]:
        """Each op in one line."""
        op_types = self.timeline.ops.op_types.values()
        by_call = [str(call) if call.name else "an op that could not be read" for call in self.timeline.calls]
        return [
            by_call[call] if call != NONE else self.timeline.op_types[op_type] if op_type != NONE else ""
            for call, op_type in zip(self.study.calls, op_types, strict=True)
        ]

    @cached_property
    def modules(self) -> list[str]:
        """The module of each op; "" where the location does not say."""
        places = [place_of(call.location) for call in self.timeline.calls]
        by_call = [place.path or place.class_name if place else "" for place in places]
        return [by_call[call] if call != NONE else "" for call in self.study.calls]

    @cached_property
    def has_modules(self) -> bool:
        """Whether any location carries a module path."""
        return any(self.modules)

    @cached_property
    def places(self) -> list[str]:
        """Pass, graph and program of each op."""
        by_run = [run_text(run) for run in self.timeline.programs]
        return [by_run[run] for run in self.study.programs]

    @cached_property
    def is_const_eval(self) -> list[bool]:
        """Whether each op prepares weights."""
        by_run = [run.role is Role.CONST_EVAL for run in self.timeline.programs]
        return [by_run[run] for run in self.study.programs]

    @cached_property
    def padded_and_logical(self) -> dict[str, tuple[list[int | None], list[int | None]]]:
        """Bytes alive before each op on the device, with and without padding, for the memories in use."""
        return {name: (padded, logical) for name, (padded, logical) in self._curves[0].items() if name in self.used}

    @cached_property
    def alive(self) -> list[str]:
        """The largest buffers alive before each op; empty when there are too many distinct ops."""
        return self._curves[1]

    @cached_property
    def persistent(self) -> dict[str, list[int | None]]:
        """Bytes per bank of weights and caches before each op, for the memories in use; empty where not replayed."""
        return {name: found for name, found in self._curves[2].items() if name in self.used and found}

    @property
    def shown(self) -> Shown:
        """How sizes that were read are shown: a log has three decimals of a MiB, a report has bytes."""
        return Shown.BYTES if self.timeline.allocations else Shown.READING

    @cached_property
    def _curves(
        self,
    ) -> tuple[dict[str, tuple[list[int | None], list[int | None]]], list[str], dict[str, list[int | None]]]:
        named = _NAMED_BUFFERS if len(self.timeline.calls) <= DESCRIBED_OPS else 0
        curves: dict[str, tuple[list[int | None], list[int | None]]] = {name: ([], []) for name in self.study.readings}
        alive: list[str] = []
        persistent: dict[str, list[int | None]] = {name: [] for name in self.study.readings}
        known: dict[tuple[LiveBuffer, ...], str] = {}
        for curve in follow_all(self.study, largest=named):
            for name, sides in curves.items():
                sides[0].extend(curve.padded[name])
                sides[1].extend(curve.logical[name])
                persistent[name].extend(curve.persistent.get(name, ()))
            for buffers in curve.largest:
                if buffers not in known:
                    known[buffers] = ", ".join(f"{one.owner} {show_bytes(one.padded_bytes)}" for one in buffers)
                alive.append(known[buffers])
        return curves, alive, persistent

    # what was alive at the peaks

    @cached_property
    def live_at_peaks(self) -> dict[str, LiveSet]:
        """By memory, where the log tells what was live."""
        found = {}
        for name in self.used:
            live = live_at_peak(self.study, self.peaks[name])
            if live is not None:
                found[name] = live
        return found

    def outermost_runs(self) -> Sequence[ProgramRun]:
        """The passes, and const-evals that stand alone."""
        return [run for run in self.timeline.programs if run.parent == NONE]

    def const_eval_runs(self) -> Sequence[ProgramRun]:
        """The runs that prepared weights inside a pass."""
        return [run for run in self.timeline.programs if run.role is Role.CONST_EVAL and run.parent != NONE]


def run_text(run: ProgramRun) -> str:
    """A program run in a few words."""
    name = run.name or "unnamed program"
    if run.pass_index == NONE:
        return name
    return f"pass {run.pass_index}, graph {run.graph}, {name}"


def memory_view(folder: ReportFolder) -> MemoryView:
    """The view of a folder's timeline; the sections of one page share it."""
    path = find_folder(folder.path).timeline
    return _opened(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _opened(path: Path, _modified_ns: int) -> MemoryView:
    return MemoryView(read_timeline(path))
