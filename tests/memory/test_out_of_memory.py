import pytest

from tests.memory.log_generator.device import MIB, wormhole
from tests.memory.log_generator.graphs import Argument, Graph, Writer
from tests.memory.log_generator.tensors import Tensor
from tests.memory.timelines import study_of
from torchstone.memory.out_of_memory import explain_failure, explain_last_failure
from torchstone.memory.study import Study
from torchstone.record.memory import Failure, FailureKind, MemoryTimeline
from torchstone.record.memory_findings import Verdict


def growing_graph(*shapes: tuple[int, ...]) -> Graph:
    """Makes one tensor after the other and keeps them all."""
    graph = Graph(module="G", arguments=[Argument("args_0", "input", Tensor((32, 32), "f32"))])
    writer = Writer(graph)
    values = tuple(writer.add("ttnn.repeat", "RepeatOp", ("%arg0",), Tensor(shape, "f32")) for shape in shapes)
    graph.outputs = values
    return graph


def holed_graph() -> Graph:
    """Fills the memory with small tensors, frees every second, then asks for a large one."""
    graph = Graph(module="G", arguments=[Argument("args_0", "input", Tensor((32, 32), "f32"))])
    writer = Writer(graph)
    small = [writer.add("ttnn.repeat", "RepeatOp", ("%arg0",), Tensor((384, 3200), "f32")) for _ in range(8)]
    for value in small[::2]:
        writer.add("ttnn.sum", "ReductionOp", (value,), Tensor((32, 32), "f32"))
    writer.add("ttnn.repeat", "RepeatOp", ("%arg0",), Tensor((384, 6400), "f32"))
    graph.outputs = tuple(small[1::2])
    return graph


def failed(graph: Graph, *, dram_bytes: int) -> Study:
    study, truth = study_of([graph], passes=1, memories=wormhole(dram_bytes=dram_bytes))
    assert truth.out_of_memory is not None
    assert study.timeline.failures[0].op == truth.failed_row
    return study


def test_more_than_is_free_is_a_matter_of_capacity() -> None:
    study = failed(growing_graph((384, 3200), (384, 3200), (384, 3200)), dram_bytes=MIB)

    found = explain_last_failure(study)

    assert found is not None
    assert found.verdict is Verdict.CAPACITY
    assert found.needed_bytes == 409600
    assert not found.recovered
    assert study.name_of(found.op) == "%2 = ttnn.repeat(%arg0)"


def test_enough_but_not_in_one_block_is_fragmentation() -> None:
    study = failed(holed_graph(), dram_bytes=8 * 409600 + 100_000)

    found = explain_last_failure(study)

    assert found is not None
    assert found.verdict is Verdict.FRAGMENTATION
    assert found.needed_bytes is not None
    assert found.free_bytes is not None
    assert found.largest_block_bytes is not None
    assert found.largest_block_bytes < found.needed_bytes <= found.free_bytes


def test_more_than_a_bank_holds_is_oversized() -> None:
    found = explain_last_failure(failed(growing_graph((3840, 3200)), dram_bytes=MIB))

    assert found is not None
    assert found.verdict is Verdict.OVERSIZED


def test_the_same_words_twice_are_one_failure() -> None:
    study = failed(growing_graph((3840, 3200)), dram_bytes=MIB)

    assert len(study.timeline.failures) == 1


def test_a_padded_result_is_named_with_what_it_costs() -> None:
    found = explain_last_failure(failed(growing_graph((3840, 3200, 2)), dram_bytes=MIB))

    assert found is not None
    assert "last dim 2 padded to 32: 16x" in found.advice[0]


@pytest.mark.parametrize(
    ("needed", "bank", "verdict"), [(40000, 32768, Verdict.OVERSIZED), (100, 32768, Verdict.UNCLEAR)]
)
def test_the_old_form_is_judged_by_what_it_says(needed: int, bank: int, verdict: Verdict) -> None:
    failure = Failure(
        kind=FailureKind.OUT_OF_MEMORY,
        op=-1,
        line=1,
        message="x",
        memory="L1_SMALL",
        needed_bytes=needed,
        bank_bytes=bank,
    )

    found = explain_failure(Study(MemoryTimeline(dialect="x", failures=(failure,))), failure)

    assert found.verdict is verdict
    assert not found.is_measured
    assert any("circular buffers" in line for line in found.advice)


def test_what_the_old_form_leaves_out_comes_from_the_last_snapshot() -> None:
    study = failed(growing_graph((384, 3200), (384, 3200), (384, 3200)), dram_bytes=MIB)
    failure = study.timeline.failures[0]
    old = Failure(
        kind=failure.kind, op=failure.op, line=9, message="x", memory="DRAM", needed_bytes=failure.needed_bytes
    )

    found = explain_failure(study, old)

    assert found.is_measured
    assert found.verdict is Verdict.CAPACITY


def test_circular_buffers_are_a_verdict_of_their_own() -> None:
    failure = Failure(kind=FailureKind.CIRCULAR_BUFFERS, op=-1, line=1, message="clash", memory="L1")

    assert explain_failure(Study(MemoryTimeline(dialect="x")), failure).verdict is Verdict.CIRCULAR_BUFFERS


def test_a_log_that_ran_through_has_no_failure() -> None:
    assert explain_last_failure(study_of(1)[0]) is None
