from importlib.metadata import EntryPoint

import pytest

from torchstone.errors import InputError
from torchstone.memory.dialects.registry import GROUP, dialect_named, dialects
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.memory.timeline_builder import Scale, TimelineBuilder
from torchstone.memory.usage import find_peaks
from torchstone.record.memory import Evidence, MemoryState, MemoryTimeline, OpCall


class ByteLog:
    """Another vendor's log: `run NAME USED` per op, in exact bytes."""

    name = "byte-log"
    looked_for = "lines such as `run add 100`"

    def is_spoken_in(self, sample: bytes) -> bool:
        return sample.startswith(b"run ")

    def open_reader(self, *, rank: str = "") -> "ByteLogReader":
        assert rank == ""
        return ByteLogReader()


class ByteLogReader:
    def __init__(self) -> None:
        self._text = b""

    def feed(self, chunk: bytes) -> None:
        self._text += chunk

    def finish(self) -> MemoryTimeline:
        builder = TimelineBuilder()
        lines = self._text.decode().splitlines()
        for number, line in enumerate(lines, start=1):
            _, name, used = line.split()
            builder.calls.append(OpCall(name=name))
            builder.add_op(len(builder.calls) - 1, number)
            builder.open_op_block(builder.op_type_id(name), number)
            state = MemoryState(banks=1, capacity=1000, allocated=int(used), free=1000 - int(used), largest_free=1)
            slot = builder.slot("HBM")
            builder.read_state(slot, builder.add_state(slot, state))
        return builder.build(
            dialect=ByteLog.name,
            types=[],
            modules=[],
            evidence=Evidence(lines=len(lines), runtime_lines=len(lines)),
            scale=Scale(ticks_per_mib=1 << 20, row_alignment_bytes=1),
        )


def install(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    entry = EntryPoint(name="byte-log", value=value, group=GROUP)
    monkeypatch.setattr("torchstone.memory.dialects.registry.entry_points", lambda group: [entry])  # noqa: ARG005


def test_the_built_in_format_is_known_by_name_and_comes_first() -> None:
    assert dialect_named("tt-runtime").name == "tt-runtime"
    assert next(dialects()).name == "tt-runtime"


def test_an_unknown_format_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="tt-runtime"):
        dialect_named("nope")


def test_the_log_of_another_vendor_is_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, f"{__name__}:ByteLog")

    timeline = parse_log(["run add 100", "run mul 700", "run free 300"])

    (peak,) = find_peaks(Study(timeline))
    assert (timeline.dialect, peak.memory, peak.state.allocated, peak.op) == ("byte-log", "HBM", 700, 1)
    assert Study(timeline).readings["HBM"].effects[0] == 600
    assert dialect_named("byte-log").name == "byte-log"


def test_a_format_that_cannot_be_loaded_is_named_and_does_not_hurt_others(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "nowhere.at_all:Dialect")

    with pytest.raises(InputError, match=r"nowhere\.at_all"):
        dialect_named("byte-log")
    assert parse_log(["                 Always |    DEBUG | Device grid size = { 8, 8 }"]).dialect == "tt-runtime"
