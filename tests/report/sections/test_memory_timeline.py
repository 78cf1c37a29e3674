from pathlib import Path

import pytest

from tests.memory.log_generator.demo import failing_log, healthy_log
from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.run import Host, generate
from tests.memory.log_generator.serving import serving_log
from tests.memory.log_generator.style import Style
from tests.report.memory_folders import memory_folder
from torchstone.report.section import Shown, Tone
from torchstone.report.sections.memory_timeline import OPS_TABLE, build


def test_every_memory_of_the_log_has_a_tab(tmp_path: Path) -> None:
    view = build(memory_folder(healthy_log(), tmp_path))

    assert list(dict.fromkeys(chart.tab for chart in view.charts)) == ["DRAM", "L1", "L1_SMALL", "TRACE"]


def test_the_peak_is_marked_and_the_capacity_is_a_line(tmp_path: Path) -> None:
    view = build(memory_folder(healthy_log(), tmp_path))

    (mark,) = view.charts[0].marks
    table = next(table for table in view.tables if table.name == OPS_TABLE)
    allocated = next(column for column in table.columns if column.name == "allocated.DRAM")
    assert allocated.values[mark.row] == max(allocated.values)  # type: ignore[type-var]
    assert view.charts[0].lines[0].text == "capacity 1.00 GiB"


def test_passes_are_bands_that_cover_every_op(tmp_path: Path) -> None:
    view = build(memory_folder(healthy_log(), tmp_path))

    bands = view.charts[0].bands
    assert [band.text for band in bands[:2]] == ["pass 0, graph 0", "pass 1, graph 1"]
    assert bands[-1].end == next(table for table in view.tables if table.name == OPS_TABLE).rows


def test_every_charted_column_is_in_the_table(tmp_path: Path) -> None:
    view = build(memory_folder(healthy_log(), tmp_path))

    names = {table.name: [column.name for column in table.columns] for table in view.tables}
    for chart in view.charts:
        assert {*chart.hover, *(series.column for series in chart.series)} <= set(names[chart.table])
    assert all(len(set(columns)) == len(columns) for columns in names.values())


def test_in_long_logs_programs_that_prepare_weights_are_bands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.report.sections.memory_timeline._MARKED_OPS", 10)

    view = build(memory_folder(healthy_log(), tmp_path))

    assert "main_const_eval_0" in {band.text for band in view.charts[0].bands}
    assert [series.title for series in view.charts[0].series] == ["allocated", "weights and caches"]


def test_the_verdict_stands_first_and_the_failing_op_is_marked(tmp_path: Path) -> None:
    view = build(memory_folder(failing_log(), tmp_path / "failed"))
    healthy = build(memory_folder(healthy_log(), tmp_path / "healthy"))

    assert view.banner is not None
    assert view.banner.tone is Tone.BAD
    assert "It needs 3.91 MiB per bank of DRAM" in view.banner.text
    assert [mark.text for mark in view.charts[0].marks][-1] == "failed here: needs 3.91 MiB more"
    assert healthy.banner is not None
    assert healthy.banner.text.startswith("No allocation failed. Fullest: DRAM ")


def test_changes_between_passes_have_causes_that_add_up(tmp_path: Path) -> None:
    log, _ = serving_log(2, host=Host(keeps_outputs=True))
    view = build(memory_folder(log, tmp_path))

    steps = {column.name: list(column.values) for column in view.tables[0].columns}

    assert len(steps["change"]) > 3
    assert all("kept outputs of graph" in text or "const-eval results" in text for text in map(str, steps["parts"]))
    assert view.banner is not None
    assert "out of memory at about step" in view.banner.text


def test_sizes_that_were_read_have_no_more_digits_than_the_log(tmp_path: Path) -> None:
    view = build(memory_folder(healthy_log(), tmp_path))

    assert view.charts[0].shown is Shown.READING


def test_a_failure_is_the_first_card(tmp_path: Path) -> None:
    card = build(memory_folder(failing_log(), tmp_path)).cards[0]

    assert (card.title, card.value, card.tone) == ("Out of memory", "capacity", Tone.BAD)
    assert "needed 3.91 MiB" in card.detail


def test_what_a_log_lacks_is_a_note(tmp_path: Path) -> None:
    log, _ = generate([random_graph(3)], style=Style(info_only=True))

    assert any("no op lines" in note for note in build(memory_folder(log, tmp_path)).notes)
