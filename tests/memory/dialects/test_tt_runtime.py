from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.log_generator.graphs import Graph, random_graph
from tests.memory.log_generator.run import Truth, generate
from tests.memory.log_generator.style import Style
from torchstone.memory.dialects.tt_runtime import TTRuntime
from torchstone.record.memory import MemoryTimeline, OpFlag, Role

styles = st.builds(
    Style,
    level=st.sampled_from(["operation", "any"]),
    new_dialect=st.booleans(),
    dumps=st.booleans(),
    prints=st.booleans(),
    ansi=st.booleans(),
    crlf=st.booleans(),
    stamped=st.booleans(),
    ranks=st.sampled_from([0, 1, 2]),
)


def read(log: bytes, *, chunk_bytes: int = 1 << 20, rank: str = "") -> MemoryTimeline:
    reader = TTRuntime().open_reader(rank=rank)
    for start in range(0, len(log), chunk_bytes):
        reader.feed(log[start : start + chunk_bytes])
    return reader.finish()


def graphs_of(seed: int, *, traced: bool = False) -> list[Graph]:
    return [random_graph(seed, traced=traced), random_graph(seed + 1, module="SyncTensorsGraph.2", num_ops=5)]


def allocated(timeline: MemoryTimeline, memory: str) -> list[int]:
    (found,) = (found for found in timeline.memories if found.name == memory)
    ticks, state_of = found.allocated.values(), found.state_of.values()
    return [ticks[state_of[snapshot]] for snapshot in timeline.ops.snapshots.values()]


def assert_true(timeline: MemoryTimeline, truth: Truth) -> None:
    rows = truth.rows
    programs = [timeline.programs[number] for number in timeline.ops.programs.values()]
    flags = timeline.ops.flags.values()
    assert timeline.unread_count == 0
    assert [timeline.op_types[number] for number in timeline.ops.op_types.values()] == [row.op_type for row in rows]
    for memory in rows[0].memory:
        assert allocated(timeline, memory) == [row.memory[memory][0] for row in rows]
    assert [timeline.calls[number].name for number in timeline.ops.calls.values()] == [row.name for row in rows]
    assert [program.name for program in programs] == [row.program for row in rows]
    assert [program.pass_index for program in programs] == [row.pass_index for row in rows]
    assert [program.graph for program in programs] == [row.graph for row in rows]
    assert [program.role is Role.CONST_EVAL for program in programs] == [row.const_eval for row in rows]
    assert [bool(flag & OpFlag.RETAINED) for flag in flags] == [row.retained for row in rows]


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), style=styles, passes=st.integers(1, 3), chunk_bytes=st.sampled_from([313, 1 << 20]))
def test_every_row_is_true_in_every_style(seed: int, style: Style, passes: int, chunk_bytes: int) -> None:
    log, truth = generate(graphs_of(seed), passes=passes, style=style)

    assert_true(read(log, chunk_bytes=chunk_bytes), truth)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_trace_mode_keeps_captured_ops_in_their_program(seed: int) -> None:
    log, truth = generate(graphs_of(seed, traced=True), passes=3)

    assert_true(read(log), truth)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), level=st.sampled_from(["operation", "any"]))
def test_a_log_without_debug_lines_still_has_every_block(seed: int, level: str) -> None:
    log, truth = generate(graphs_of(seed), passes=2, style=Style(info_only=True, level=level))

    timeline = read(log)

    assert allocated(timeline, "DRAM") == [row.memory["DRAM"][0] for row in truth.rows]
    assert set(timeline.ops.calls.values()) == {-1}
    assert timeline.passes == (truth.passes if level == "any" else 1)


def test_passes_seen_before_are_told_from_their_text_alone() -> None:
    log, truth = generate(graphs_of(5), passes=40)

    assert_true(read(log), truth)


def test_line_numbers_are_those_of_the_file() -> None:
    log, _ = generate(graphs_of(5), passes=4, style=Style(prints=True))
    lines = log.split(b"\n")

    timeline = read(log, chunk_bytes=9999)

    assert timeline.evidence.lines == len(lines) - 1
    assert all(b"Executing operation" in lines[line - 1] for line in timeline.ops.lines.values())


def test_the_other_rank_has_its_own_numbers() -> None:
    log, _ = generate(graphs_of(5), style=Style(ranks=2))

    first, second = read(log), read(log, rank="1,1")

    assert first.evidence.ranks == ("1,0", "1,1")
    assert first.evidence.rank == "1,0"
    assert allocated(first, "DRAM") != allocated(second, "DRAM")
    assert len(first.ops) == len(second.ops)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 50), cut=st.floats(0.3, 1))
def test_a_log_that_breaks_off_gives_all_that_stands_before(seed: int, cut: float) -> None:
    log, truth = generate(graphs_of(seed))
    log = log[: int(len(log) * cut)]

    timeline = read(log)

    assert timeline.evidence.op_lines == sum(
        b"Executing operation: " in line for line in log.split(b"\n")
    )  # grep is the judge
    known = [row.memory["DRAM"][0] for row in truth.rows]
    ends = timeline.ops.snapshots.values()
    whole = next((row for row, snapshot in enumerate(ends) if snapshot < 0), len(ends))
    if whole:
        assert allocated(timeline, "DRAM")[: whole - 1] == known[: whole - 1]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 50), damage=st.data())
def test_damaged_lines_are_counted_and_the_rest_is_read(seed: int, damage: st.DataObject) -> None:
    log, truth = generate(graphs_of(seed))
    lines = log.split(b"\n")
    ops = [number for number, line in enumerate(lines) if b"Executing operation" in line]
    hit = damage.draw(st.lists(st.sampled_from(ops), min_size=1, max_size=5, unique=True))
    for number in hit:
        lines[number] = lines[number][: lines[number].index(b"Executing operation: ") + 30]

    timeline = read(b"\n".join(lines))

    assert timeline.unread_count == len(hit)
    assert [unread.line - 1 for unread in timeline.unread] == sorted(hit)
    assert allocated(timeline, "DRAM") == [row.memory["DRAM"][0] for row in truth.rows]


def test_lines_of_many_megabytes_do_not_hurt() -> None:
    log, truth = generate(graphs_of(5))
    constant = b'        %9 = "ttnn.constant"() <{value = dense<"0x' + b"AB" * (6 << 20) + b'">}> : () -> x\n'
    at = log.index(b"        return %0")

    timeline = read(log[:at] + constant + log[at:])

    assert_true(timeline, truth)
    assert timeline.evidence.shortened_lines == 1


def test_readings_without_any_header_are_snapshots_of_their_own() -> None:
    log, truth = generate(graphs_of(5))
    readings = b"\n".join(
        line.partition(b"INFO | ")[2] for line in log.split(b"\n") if b" memory state: MemoryView" in line
    )

    timeline = read(readings + b"\n")

    assert len(timeline.ops) == 0
    assert len(timeline.marks) == len(truth.snapshots)


def test_a_second_reading_of_the_same_memory_in_a_block_is_unread() -> None:
    log, _ = generate(graphs_of(5), passes=1)
    lines = log.split(b"\n")
    at = next(number for number, line in enumerate(lines) if b"Device DRAM" in line)

    timeline = read(b"\n".join([*lines[: at + 1], lines[at], *lines[at + 1 :]]))

    assert timeline.unread_count == 1


def test_an_end_without_a_beginning_is_unread() -> None:
    log, _ = generate(graphs_of(5), passes=1)
    stray = b"            RuntimeTTNN |    DEBUG | Finished execution of program: other\n"

    assert read(log + stray).unread_count == 1


def test_lines_left_out_are_a_gap() -> None:
    log, _ = generate(graphs_of(5), passes=1)
    left_out = b"                 Always |     INFO | torchstone: lines are left out here\n"

    timeline = read(log + left_out)

    assert timeline.ops.flags.values()[-1] & OpFlag.GAP_AFTER


@pytest.mark.parametrize("style", [Style(), Style(stamped=True), Style(ranks=2, ansi=True)])
def test_the_format_is_recognised(style: Style) -> None:
    log, _ = generate(graphs_of(5), style=replace(style, dumps=False))

    assert TTRuntime().is_spoken_in(log)
    assert not TTRuntime().is_spoken_in(b"hello\nworld | INFO | no\n")
