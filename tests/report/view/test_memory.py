from pathlib import Path

import pytest

from tests.memory.log_generator.demo import healthy_log
from tests.memory.timelines import study_of
from tests.report.memory_folders import memory_folder
from torchstone.record.memory import ProgramRun, Role
from torchstone.report.view.memory import MemoryView, memory_view, run_text


def test_columns_have_one_value_per_op() -> None:
    study, truth = study_of(3)
    view = MemoryView(study.timeline)

    for memory in view.used:
        columns = (view.allocated(memory), view.effects(memory), view.fragmentation(memory))
        assert [len(column) for column in columns] == [len(truth.rows)] * 3
        assert [len(side) for side in view.padded_and_logical[memory]] == [len(truth.rows)] * 2
    assert len(view.texts) == len(view.places) == len(view.alive) == len(truth.rows)
    assert view.is_const_eval == [row.const_eval for row in truth.rows]


def test_allocated_is_what_the_log_says_in_bytes() -> None:
    study, truth = study_of(3)

    found = MemoryView(study.timeline).allocated("DRAM")

    assert found == [round(row.memory["DRAM"][0] * (1 << 20) / 1000) for row in truth.rows]


def test_an_effect_that_is_not_known_stays_unknown() -> None:
    study, _ = study_of(3)

    assert MemoryView(study.timeline).effects("DRAM")[-1] is None


def test_memories_that_never_held_anything_are_not_in_use() -> None:
    view = MemoryView(study_of(3)[0].timeline)

    assert "TRACE" not in view.used
    assert "TRACE" in view.peaks


def test_too_many_distinct_ops_are_not_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.report.view.memory.DESCRIBED_OPS", 3)

    assert MemoryView(study_of(3)[0].timeline).alive == []


def test_modules_come_from_locations(tmp_path: Path) -> None:
    view = memory_view(memory_folder(healthy_log(), tmp_path))

    assert view.has_modules
    assert "head.coordinates" in view.modules


def test_a_run_is_named_by_pass_and_graph() -> None:
    run = ProgramRun(
        name="main", role=Role.FORWARD, parent=-1, parent_op=-1, first_op=0, end_op=1, first_line=1, last_line=2,
        complete=True, pass_index=4, graph=1,
    )  # fmt: skip

    assert run_text(run) == "pass 4, graph 1, main"
