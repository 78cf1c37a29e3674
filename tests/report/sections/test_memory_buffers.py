import json
from pathlib import Path

from tests.memory.log_generator.demo import failing_log
from tests.memory.log_generator.run import Host
from tests.memory.log_generator.serving import serving_log
from tests.memory.test_ttnn_report import small_report, written
from tests.report.memory_folders import memory_folder
from torchstone.memory.folder import folder_for, write_folder
from torchstone.memory.read_log import parse_log
from torchstone.report.section import ReportFolder
from torchstone.report.sections.memory_buffers import build


def test_each_memory_has_a_map_of_addresses_and_lifetimes(tmp_path: Path) -> None:
    view = build(memory_folder(failing_log(), tmp_path))

    assert [(one["kind"], one["table"]) for one in view.settings["maps"]] == [
        ("addresses", "buffers.DRAM"), ("addresses", "buffers.L1"),
        ("lifetimes", "buffers.DRAM"), ("lifetimes", "buffers.L1"),
    ]  # fmt: skip
    assert all(card.value == "replayed" for card in view.cards)
    assert all(table.rows for table in view.tables if table.name in {"buffers.DRAM", "buffers.L1"})


def test_where_the_replay_is_wrong_there_is_no_map_and_a_reason(tmp_path: Path) -> None:
    log, _ = serving_log(1, host=Host(churn_bytes=98_304), order=(0, 1, 2, 0, 1, 2))

    view = build(memory_folder(log, tmp_path))

    placement = view.document["placement"][0]
    assert placement["verified_passes"] < placement["passes"]
    assert any("disagrees" in note for note in view.notes)


def test_cores_are_drawn_where_the_report_states_them(tmp_path: Path) -> None:
    path = written(tmp_path, small_report())
    document = json.loads(path.read_text())
    document["devices"][0] |= {"num_x_compute_cores": 8, "num_y_compute_cores": 8}
    path.write_text(json.dumps(document))
    folder = tmp_path / "out"
    write_folder(folder_for("net.log", directory=folder), parse_log(path))

    view = build(ReportFolder(folder))

    cores = next(table for table in view.tables if table.name == "buffers.cores")
    columns = {column.name: list(column.values) for column in cores.columns}
    (settings,) = (one for one in view.settings["maps"] if one["kind"] == "cores")
    peak = [row for row, op in enumerate(columns["op"]) if op == settings["chosen"]]
    assert len(peak) == 64
    assert columns["programs"][peak[0]] == 1500  # two buffers on the first core, one on the others
    assert {columns["programs"][row] for row in peak[1:]} == {1000}
    assert {columns["tensors"][row] for row in peak} == {12288}
    assert [op for op, _ in settings["names"]] == list(dict.fromkeys(columns["op"]))  # each op that changes L1
    assert cores.rows == 64 * len(settings["names"]) > 64
