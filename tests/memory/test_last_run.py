from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.log_generator.device import MIB, wormhole
from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.run import generate
from tests.memory.log_generator.style import Style
from tests.memory.timelines import two_graphs
from torchstone.errors import InputError
from torchstone.memory.ledger import live_before
from torchstone.memory.read_log import choose_last_run, parse_log, select_lines, write_last_run
from torchstone.memory.study import Study
from torchstone.record.memory import MemoryTimeline, Role


def last_run_of(log: bytes) -> tuple[Study, Study]:
    lines = log.splitlines(keepends=True)
    whole = parse_log(lines)
    return Study(whole), Study(parse_log(select_lines(lines, choose_last_run(whole))))


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), passes=st.integers(1, 4), ansi=st.booleans())
def test_the_last_run_reads_like_the_last_passes(*, seed: int, passes: int, ansi: bool) -> None:
    log, truth = generate(two_graphs(seed), passes=passes, style=Style(ansi=ansi))
    whole, last = last_run_of(log)

    assert last.timeline.passes == len(whole.timeline.graphs)
    assert [graph.module for graph in last.timeline.graphs] == [graph.module for graph in whole.timeline.graphs]
    wanted = [row.memory["DRAM"][0] for row in truth.rows if row.pass_index >= truth.passes - 2 and not row.const_eval]
    found = [
        allocated
        for op, allocated in enumerate(last.readings["DRAM"].allocated)
        if last.run(op).role is not Role.CONST_EVAL
    ]
    assert found == wanted
    evals = {run.name for run in whole.timeline.programs if run.role is Role.CONST_EVAL}
    assert {run.name for run in last.timeline.programs if run.role is Role.CONST_EVAL} == evals


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_weights_still_have_their_names_in_the_last_run(seed: int) -> None:
    whole, last = last_run_of(generate(two_graphs(seed), passes=3)[0])

    at_end = [live_before(study, len(study.calls) - 1)[0] for study in (whole, last)]

    assert {one.owner for one in at_end[0].buffers} == {one.owner for one in at_end[1].buffers}


def test_trace_mode_takes_the_pass_that_captured() -> None:
    log, truth = generate([random_graph(3, traced=True)], passes=3)

    _, last = last_run_of(log)

    captured = sum(row.program == "run_and_capture_trace_0_main" for row in truth.rows)
    found = [last.run(op).name for op in range(len(last.calls))]
    assert found.count("run_and_capture_trace_0_main") == captured > 1


def test_a_failed_pass_is_kept_beside_the_last_complete_one() -> None:
    graph = random_graph(3)
    log, truth = generate([graph], memories=wormhole(dram_bytes=MIB // 12))
    assert truth.out_of_memory is not None

    whole, last = last_run_of(log)

    assert len(last.timeline.programs) >= 1
    assert "no complete pass" in choose_last_run(whole.timeline).notes[0]


def test_the_log_itself_stays_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(generate(two_graphs(1), passes=3)[0])
    before = log.read_bytes()
    last = choose_last_run(parse_log(log))

    written = write_last_run(log, last, tmp_path / "last.log")

    assert log.read_bytes() == before
    assert len((tmp_path / "last.log").read_bytes().splitlines()) == written < len(before.splitlines())
    with pytest.raises(InputError, match="the log itself"):
        write_last_run(log, last, log)


def test_a_log_without_programs_has_no_last_run() -> None:
    with pytest.raises(InputError, match="TTMLIR_RUNTIME_LOGGER_LEVEL"):
        choose_last_run(MemoryTimeline(dialect="x"))
