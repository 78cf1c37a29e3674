from pathlib import Path

from tests.memory.log_generator.demo import failing_log, healthy_log
from tests.report.memory_folders import memory_folder
from torchstone.report.section import SectionView, Table
from torchstone.report.sections.memory_peaks import build


def table(view: SectionView, name: str) -> Table:
    return next(one for one in view.tables if one.name == name)


def test_weights_at_the_peak_have_their_layer_names(tmp_path: Path) -> None:
    view = build(memory_folder(healthy_log(), tmp_path))

    owners = next(column for column in table(view, "peaks.alive.DRAM").columns if column.name == "owner")
    assert "blocks.0.mlp.fc1.weight" in owners.values
    assert owners.values[0] == "ttnn.reshape %31"


def test_growth_is_blamed_on_the_op_that_made_it(tmp_path: Path) -> None:
    view = build(memory_folder(healthy_log(), tmp_path))

    what = next(column for column in table(view, "peaks.growth.DRAM").columns if column.name == "what")
    assert what.values[0] == "%31 = ttnn.reshape(%30)"


def test_modules_are_rolled_up_where_locations_name_them(tmp_path: Path) -> None:
    view = build(memory_folder(healthy_log(), tmp_path))

    path = next(column for column in table(view, "peaks.modules").columns if column.name == "path")
    assert path.values[0] == "head.coordinates"


def test_a_failure_comes_with_advice(tmp_path: Path) -> None:
    view = build(memory_folder(failing_log(), tmp_path))

    assert "16x" in str(table(view, "peaks.advice").columns[0].values[0])
    assert view.document["oom"]["operation_index"] == 110
