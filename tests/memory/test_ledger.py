"""The ledger against the truth of a simulated device: whose memory it is, at every snapshot."""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from tests.memory.ledger_truth import Agreement, is_violated
from tests.memory.log_generator.device import MIB, blackhole, wormhole
from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.irregular import irregular_graphs
from tests.memory.log_generator.run import Host, generate
from tests.memory.log_generator.serving import STAGES, random_model, ranked_log, serving_graphs, serving_log
from tests.memory.log_generator.style import Style
from tests.memory.log_generator.variants import Log, beheaded_log, chaos_log, cut_in_a_dump
from torchstone.memory.documents import registry_document, show_document
from torchstone.memory.ledger import live_before
from torchstone.memory.liveness import settled
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.record.memory_findings import LiveBuffer, Origin


def study_of(log: bytes, *, rank: str = "") -> Study:
    return Study(parse_log(log.splitlines(keepends=True), rank=rank))


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(
    ("order", "host", "level"),
    [
        ((0, 2, 2, 1, 2, 0), Host(), "operation"),
        ((2, 0, 1, 0, 2), Host(keeps_outputs=True), "any"),
        ((0, 2, 1, 2, 0), Host(keeps_inputs=True), "operation"),
        ((0, 1, 2, 0), Host(uploads_first=True, base_bytes=MIB), "operation"),
    ],
)
def test_live_sets_are_exact_whatever_the_host_keeps(seed: int, order: Sequence[int], host: Host, level: str) -> None:
    log, truth = serving_log(seed, order=order, host=host, style=Style(stages=STAGES, level=level))
    found = Agreement()

    found.add(study_of(log), truth, "", every=5)

    assert found.wrong == []
    assert found.violations == 0


@pytest.mark.parametrize("seed", [0, 1, 5])
@pytest.mark.parametrize(
    "style",
    [Style(stages=STAGES), Style(stages=STAGES, compiles_late=True), Style(stages=STAGES, cache_keys=False)],
)
def test_live_sets_of_irregular_graphs_are_exact(seed: int, style: Style) -> None:
    log, truth = generate(irregular_graphs(seed), order=(2, 0, 1, 0, 2), style=style)
    found = Agreement()

    found.add(study_of(log), truth, "")

    assert found.wrong == []
    assert found.violations == 0


@pytest.mark.parametrize(
    ("seed", "host"),
    [
        (26, Host(replaces_outputs=True)),  # some outputs are smaller than what a reading can show
        (20, Host(keeps_outputs=True)),
        (109, Host(keeps_outputs=True)),  # an output is an input
        (4, Host(donates=True)),
        (2, Host(feeds=True)),
        (4, Host(invalidates=0.3, seed=4)),
        (1, Host(program_cache=True)),
        (205, Host(uploads_first=True, keeps_outputs=True)),
    ],
)
def test_the_habits_of_the_host_are_found_over_the_whole_log(seed: int, host: Host) -> None:
    random = Random(seed)  # noqa: S311 - no secret
    order = [random.randrange(3) for _ in range(8)]
    log, truth = generate(irregular_graphs(seed), order=order, host=host, style=Style(stages=STAGES))
    found = Agreement()

    found.add(study_of(log), truth, "", every=4)

    assert found.wrong == []
    assert found.violations == 0


@pytest.mark.parametrize("seed", [106, 103])
def test_each_output_may_have_a_habit_of_its_own(seed: int) -> None:
    log, truth = serving_log(seed, host=Host(slots=True, seed=seed))
    found = Agreement()

    found.add(study_of(log), truth, "", every=9)

    assert found.wrong == []


@pytest.mark.parametrize("order", [(0, 1, 1, 2, 3, 5, 5, 4), (0, 1, 1, 2, 3, 5, 5, 4, 2, 0)])
def test_a_model_that_is_freed_between_two_tests_is_gone(order: Sequence[int]) -> None:
    graphs = [*irregular_graphs(3), *serving_graphs(random_model(4))]
    log, truth = generate(graphs, order=order, host=Host(unloads=True), style=Style(stages=STAGES))
    found = Agreement()

    found.add(study_of(log), truth, "", every=4)

    assert found.wrong == []
    assert found.violations == 0


@pytest.mark.parametrize("part", [b"tensor<", b'"ttnn.deallocate"('])
def test_a_damaged_deallocate_frees_by_its_effect(part: bytes) -> None:
    log, truth = serving_log(2, order=(0, 2))
    mark = b'Executing operation: "ttnn.deallocate"(%'
    lines = log.splitlines(keepends=True)
    at = [number for number, line in enumerate(lines) if mark in line and b"%arg" not in line][12]
    lines[at] = lines[at].replace(part, b"\x81\x81", 1)
    study = Study(parse_log(lines))
    found = Agreement()

    found.add(study, truth, "")

    assert study.timeline.unread_count == 1
    assert found.wrong == []


def test_rows_are_aligned_as_the_chip_does() -> None:
    log, truth = generate(irregular_graphs(3), order=(0, 1, 2), memories=blackhole())
    found = Agreement()

    found.add(study_of(log), truth, "")

    assert found.wrong == []


@pytest.mark.parametrize("seed", [2, 5])
def test_the_arguments_of_a_traced_graph_are_known(seed: int) -> None:
    log, truth = generate([random_graph(seed, traced=True), random_graph(seed + 50, module="B")], passes=3)
    found = Agreement()

    found.add(study_of(log), truth, "")

    assert found.wrong == []


@pytest.mark.parametrize("seed", range(4))
def test_a_log_that_begins_anywhere_balances(seed: int) -> None:
    log, _ = generate(irregular_graphs(seed), order=(0, 1, 2, 0), style=Style(stages=STAGES))
    study = study_of(log[len(log) * (3 + seed) // 9 :])

    assert not any(is_violated(live) for op in range(len(study.timeline.ops)) for live in live_before(study, op))


def test_the_arguments_of_a_pass_that_fails_first_are_known() -> None:
    _, healthy = serving_log(1, order=(0,))
    needed = max(sum(size for _, size in row.live["DRAM"]) for row in healthy.rows)
    log, truth = serving_log(1, memories=wormhole(dram_bytes=needed * 3 // 4 // 32 * 32))
    found = Agreement()

    found.add(study_of(log), truth, "")

    assert truth.out_of_memory is not None
    assert found.wrong == []


def test_a_log_cut_inside_an_op_line_has_no_graph_of_its_own() -> None:
    log, _ = serving_log(2)
    at = log.rindex(b"Executing operation: %") + 40

    timeline = parse_log(log[:at].splitlines(keepends=True))

    assert len(timeline.graphs) == 3
    assert all(graph.module >= 0 for graph in timeline.graphs)


@pytest.mark.parametrize("late", [False, True])
def test_ranks_are_separate_worlds_and_the_lowest_is_the_default(*, late: bool) -> None:
    log, truths = ranked_log(4, late=late)
    found = Agreement()

    found.add(study_of(log), truths[0], "default", every=7)
    found.add(study_of(log, rank="1,1"), truths[1], "1,1", every=7)

    assert found.wrong == []
    assert study_of(log).timeline.evidence.ranks == ("1,0", "1,1")


def test_a_registry_lists_each_argument_once_without_op_lines() -> None:
    log, _ = serving_log(5, style=Style(stages=STAGES, info_only=True))

    rows = registry_document(study_of(log), "x")["arguments"]

    assert len({(row["module"], row["value"]) for row in rows}) == len(rows)
    assert {row["module"] for row in rows} == {f"SyncTensorsGraph.{number}" for number in (100, 101, 900)}


def test_what_has_no_reading_is_unknown_and_not_zero() -> None:
    log, _ = serving_log(2)
    lines = log.splitlines(keepends=True)
    at = max(number for number, line in enumerate(lines) if b"before operation" in line)
    study = study_of(b"".join(lines[: at + 1]))

    live = live_before(study, len(study.timeline.ops) - 1)[0]

    assert (live.measured_bytes, live.unexplained_bytes, live.buffers) == (None, None, ())
    assert "no reading" in live.doubt


def buffer(size: int, origin: Origin = Origin.ACTIVATION) -> LiveBuffer:
    return LiveBuffer(
        origin=origin, owner="x", value="%1", op=0, type=0, bank_bytes=size, padded_bytes=size, logical_bytes=None
    )


@pytest.mark.parametrize(
    ("sizes", "ticks", "listed"),
    [
        ([2048], 2, 1),  # within the rounding of the reading
        ([2048], 10, 1),  # the rest is unexplained
        ([9000, 4096], 9, 1),  # a small excess: one buffer is withdrawn
        ([MIB, MIB], 1000, 0),  # a contradiction: all are
        ([], 5, 0),
    ],
)
def test_a_live_set_balances_by_construction(sizes: list[int], ticks: int, listed: int) -> None:
    live = settled("DRAM", 3, [buffer(size) for size in sizes], ticks, MIB / 1000)

    assert not is_violated(live)
    assert len(live.buffers) == listed
    assert bool(live.doubt) == (listed < len(sizes))


def test_the_summary_adds_up_to_the_peak() -> None:
    log, truth = serving_log(3, style=Style(stages=STAGES, level="any"), host=Host(base_bytes=MIB))

    document = show_document(study_of(log))

    named = sum(row["bytes_per_bank"] for row in document["live_at_peak"] if row["memory"] == "DRAM")
    unexplained = document["unexplained_bytes_per_bank"]["DRAM"]
    assert abs(named + unexplained - truth.peak("DRAM") * MIB / 1000) <= MIB / 1000
    assert abs(unexplained - MIB) <= MIB / 1000


def test_of_two_explanations_that_fit_neither_is_claimed() -> None:
    random = Random(24)  # noqa: S311 - no secret
    order = [random.randrange(3) for _ in range(12)]  # an input that stays has the size of an output that may stay
    log, truth = generate(irregular_graphs(24), order=order, host=Host(keeps_inputs=True), style=Style(stages=STAGES))
    study, found = study_of(log), Agreement()

    found.add(study, truth, "", every=12)

    assert found.wrong
    assert all("extra {}" in one for one in found.wrong)
    doubts = {live.doubt for live in live_before(study, 72) if live.doubt}
    assert len(doubts) == 1
    assert "more than one explanation that fits all readings" in doubts.pop()


@pytest.mark.parametrize(("make", "seed"), [(chaos_log, 9), (chaos_log, 113), (chaos_log, 127), (cut_in_a_dump, 3)])
def test_when_everything_is_irregular_nothing_wrong_is_claimed(make: Callable[[int], Log], seed: int) -> None:
    log, truth = make(seed)
    found = Agreement()

    found.add(study_of(log), truth, "", every=7)

    assert [one for one in found.wrong if "extra {}" not in one] == []
    assert found.violations == 0


def test_a_log_that_begins_in_the_middle_claims_no_sizes_that_are_not_there() -> None:
    log, truth = beheaded_log(4)
    found = Agreement(sizes_only=True)

    found.add(study_of(log), truth, "", every=7)

    assert [one for one in found.wrong if "extra {}" not in one] == []
    assert found.violations == 0


def test_without_dumps_the_reason_for_unexplained_memory_is_given() -> None:
    log, _ = serving_log(3, style=Style(dumps=False), order=(0, 2))

    live = live_before(study_of(log), 0)[0]

    assert live.unexplained_bytes
    assert "no module dump of graph 0" in live.doubt


def test_caches_of_one_name_and_size_but_other_shapes_are_two_buffers() -> None:
    log, truth = chaos_log(19)
    found = Agreement()

    found.add(study_of(log), truth, "", every=9)

    assert found.wrong == []
