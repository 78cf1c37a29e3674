from torchstone.memory.timeline_builder import Scale, TimelineBuilder
from torchstone.record.memory import (
    Evidence,
    Failure,
    FailureKind,
    MemoryState,
    MemoryTimeline,
    Moment,
    OpCall,
    OpFlag,
    Role,
)

SCALE = Scale(ticks_per_mib=1000, row_alignment_bytes=32)


def builder_with(*names: str) -> TimelineBuilder:
    builder = TimelineBuilder()
    builder.calls += [OpCall(name=name, callee="f" if "load" in name else "") for name in names]
    return builder


def built(builder: TimelineBuilder) -> MemoryTimeline:
    return builder.build(dialect="x", types=[], modules=[], evidence=Evidence(), scale=SCALE)


def reading(builder: TimelineBuilder, memory: str, allocated: int) -> bool:
    slot = builder.slot(memory)
    state = MemoryState(banks=1, capacity=100, allocated=allocated, free=100 - allocated, largest_free=1)
    return builder.read_state(slot, builder.add_state(slot, state))


def failure(message: str = "out") -> Failure:
    return Failure(kind=FailureKind.OUT_OF_MEMORY, op=-1, line=5, message=message)


def test_a_program_inside_a_load_cached_is_a_const_eval() -> None:
    builder = builder_with("ttcore.load_cached", "ttnn.add")
    builder.start("main", 1)
    builder.add_op(0, 2)
    builder.start("f", 3)
    builder.add_op(1, 4)
    builder.finish("f", 5)
    builder.add_op(1, 6)
    builder.finish("main", 7)

    outer, inner = built(builder).programs

    assert (inner.role, inner.parent, inner.parent_op) == (Role.CONST_EVAL, 0, 0)
    assert (outer.first_op, outer.end_op, inner.first_op, inner.end_op) == (0, 3, 1, 2)


def test_a_program_without_a_caller_ends_the_one_before() -> None:
    builder = builder_with("ttnn.add")
    builder.start("main", 1)
    builder.add_op(0, 2)
    builder.start("main", 3)
    builder.finish("main", 4)

    first, second = built(builder).programs

    assert (first.complete, second.complete) == (False, True)
    assert (first.parent, second.parent) == (-1, -1)


def test_after_a_failure_the_next_program_is_not_nested() -> None:
    builder = builder_with("ttcore.load_cached")
    builder.start("main", 1)
    builder.add_op(0, 2)
    builder.fail(failure())
    builder.start("f", 3)

    assert [run.parent for run in built(builder).programs] == [-1, -1]


def test_the_same_failure_told_twice_is_one() -> None:
    builder = builder_with("ttnn.add")
    builder.start("main", 1)
    builder.add_op(0, 2)
    builder.fail(failure())
    builder.fail(failure())

    (found,) = built(builder).failures

    assert found.op == 0


def test_a_failure_between_programs_blames_no_op() -> None:
    builder = builder_with("ttnn.add")
    builder.start("main", 1)
    builder.add_op(0, 2)
    builder.finish("main", 3)
    builder.fail(failure())

    assert built(builder).failures[0].op == -1


def test_a_block_whose_op_line_is_missing_is_a_row_of_its_own() -> None:
    builder = builder_with("ttnn.deallocate")
    builder.start("main", 1)
    builder.add_op(0, 2)
    builder.open_op_block(builder.op_type_id("MatmulOp"), 3)

    timeline = built(builder)

    assert timeline.ops.calls.values().tolist() == [0, -1]
    assert timeline.ops.op_types.values().tolist() == [-1, 0]


def test_readings_that_never_came_leave_no_snapshot() -> None:
    builder = builder_with("ttnn.add")
    builder.add_op(0, 1)
    builder.open_op_block(builder.op_type_id("EltwiseBinaryOp"), 2)

    assert built(builder).ops.snapshots.values().tolist() == [-1]


def test_a_memory_that_shows_up_late_is_unknown_before() -> None:
    builder = builder_with("ttnn.add")
    builder.add_op(0, 1)
    builder.open_op_block(builder.op_type_id("A"), 2)
    reading(builder, "DRAM", 5)
    builder.add_op(0, 3)
    builder.open_op_block(builder.op_type_id("A"), 4)
    reading(builder, "L1", 7)

    dram, l1 = built(builder).memories

    assert dram.state_of.values().tolist() == [0, -1]
    assert l1.state_of.values().tolist() == [-1, 0]


def test_submits_without_program_lines_delimit_passes() -> None:
    builder = builder_with()
    for line in (1, 10):
        builder.submit(Moment.BEFORE_SUBMIT, line)
        reading(builder, "DRAM", 5)
        builder.open_op_block(builder.op_type_id("A"), line + 1)
        reading(builder, "DRAM", 6)
        builder.submit(Moment.AFTER_SUBMIT, line + 2)
        reading(builder, "DRAM", 7)

    timeline = built(builder)

    assert timeline.passes == 2
    assert all(run.complete for run in timeline.programs)
    assert len(timeline.graphs) == 1
    assert len(timeline.marks) == 4


def test_a_run_that_began_before_the_log_gets_its_name_from_its_end() -> None:
    builder = builder_with("ttnn.add")
    builder.add_op(0, 1)

    assert builder.finish("main", 2)
    (run,) = built(builder).programs
    assert (run.name, run.complete) == ("main", False)


def test_an_end_closes_all_that_is_inside() -> None:
    builder = builder_with("ttcore.load_cached")
    builder.start("main", 1)
    builder.add_op(0, 2)
    builder.start("f", 3)
    builder.finish("main", 4)

    outer, inner = built(builder).programs

    assert (outer.complete, inner.complete) == (True, False)


def test_an_announced_program_outside_any_other_is_a_const_eval_that_stands_alone() -> None:
    builder = builder_with("ttnn.add")
    builder.name_cache_key("325ad2")
    builder.announce("f")
    builder.start("f", 1)
    builder.add_op(0, 2)
    builder.finish("f", 3)
    builder.start("main", 4)
    builder.finish("main", 5)

    timeline = built(builder)

    assert timeline.passes == 1
    assert timeline.programs[0].role is Role.CONST_EVAL
    assert timeline.programs[0].graph == timeline.programs[1].graph
    assert timeline.programs[0].cache_key == "325ad2"


def test_a_flag_before_any_op_is_lost_without_harm() -> None:
    builder = builder_with()
    builder.flag_op(OpFlag.RETAINED)
    builder.skip()

    assert len(built(builder).ops) == 0


def test_unread_lines_beyond_those_kept_still_count() -> None:
    builder = builder_with()
    for line in range(1500):
        builder.add_unread(line, "x" * 1000, "damaged")

    timeline = built(builder)

    assert timeline.unread_count == 1500
    assert len(timeline.unread) == 1000
    assert len(timeline.unread[0].text) == 300
