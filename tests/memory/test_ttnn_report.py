import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.memory.ledger_truth import is_violated
from torchstone.errors import InputError, UnreadableFileError
from torchstone.memory.ledger import follow_all, live_before
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.memory.ttnn_report import L1_TOTAL
from torchstone.memory.usage import late_frees, tensor_uses

DEVICE = {"num_dram_channels": 12, "dram_size_per_channel": 1 << 30, "l1_num_banks": 64, "l1_bank_size": 1393312,
          "worker_l1_size": 1499136}  # fmt: skip


@pytest.fixture
def real_report() -> Path:
    parts = ("shared", "data", "ttnn", "real_0.81.1", "graph_report_decoder_layer_n150")
    found = next((place for one in Path(__file__).parents[3:] if (place := one.joinpath(*parts)).exists()), None)
    if found is None:
        pytest.skip("the real report stands beside the project, not in it")
    return found


def node(kind: str, **params: object) -> dict[str, object]:
    return {"node_type": kind, "params": params, "connections": []}


def buffer(kind: str, address: int, size: int, memory: str = "L1") -> dict[str, object]:
    return node(kind, address=address, size=size * 64, max_size_per_bank=size, page_size=2048, type=memory)


def small_report() -> list[dict[str, object]]:
    """Two calls: the first has a temporary and circular buffers, the second frees the result of the first."""
    return [
        node("function_start", name="ttnn.silu"),
        buffer("buffer_allocate", 1400000, 4096),
        buffer("buffer_allocate", 1300000, 8192),
        node("circular_buffer_allocate", size=1000, core_range_set="{[0-0 - 7-7]}", globally_allocated="0"),
        node("circular_buffer_allocate", size=500, core_range_set="{[0-0 - 0-0]}", globally_allocated="0"),
        node("circular_buffer_allocate", size=9999, core_range_set="{[0-0 - 0-0]}", globally_allocated="1"),
        node("program_execution"),
        buffer("buffer_deallocate", 1300000, 8192),
        node("tensor", tensor_id=7, address=1400000, buffer_type=1, shape="Shape([1, 1, 32, 2048])", dtype="BFLOAT16"),
        node("function_end", name="ttnn.silu"),
        node("function_start", name="ttnn.deallocate"),
        buffer("buffer_deallocate", 1400000, 4096),
        node("function_end", name="ttnn.deallocate"),
        node("function_start", name="ttnn.ones"),
        node("function_end", name="ttnn.ones"),
    ]


def written(folder: Path, nodes: list[dict[str, object]]) -> Path:
    for number, one in enumerate(nodes):
        one["counter"] = number
    path = folder / "report.json"
    path.write_text(json.dumps({"version": 1, "graph": nodes, "devices": [DEVICE]}))
    return path


def test_temporaries_and_circular_buffers_make_the_peak(tmp_path: Path) -> None:
    study = Study(parse_log(written(tmp_path, small_report())))

    assert [study.name_of(op) for op in range(4)] == [
        "ttnn.silu()", "program of ttnn.silu()", "ttnn.deallocate()", "ttnn.ones()",
    ]  # fmt: skip
    assert study.readings["L1"].allocated.tolist() == [0, 12288, 4096, 0]
    assert study.readings[L1_TOTAL].allocated.tolist() == [0, 12288 + 1500, 4096, 0]


def test_a_buffer_whose_place_is_taken_again_was_freed_before(tmp_path: Path) -> None:
    """A capture that began in the middle lacks some of the events that free."""
    nodes = [one for one in small_report() if one["node_type"] != "buffer_deallocate"]
    nodes[-1:-1] = [buffer("buffer_allocate", 1400000, 4096), buffer("buffer_allocate", 1300000, 8192)]
    timeline = parse_log(written(tmp_path, nodes))

    timeline.check()
    assert [one.end_op - one.from_op > 0 for one in timeline.allocations if one.address == 1400000] == [True, True]


def test_a_mesh_lists_circular_buffers_for_each_chip_and_those_of_one_count(tmp_path: Path) -> None:
    nodes = small_report()
    own = [one for one in nodes if one["node_type"] == "circular_buffer_allocate"]
    for one in own:
        one["params"] = {**one["params"], "device_id": 0}  # type: ignore[dict-item]
        nodes.insert(nodes.index(one) + 1, {**one, "params": {**one["params"], "device_id": 1}})  # type: ignore[dict-item]
    study = Study(parse_log(written(tmp_path, nodes)))

    assert max(study.readings[L1_TOTAL].allocated) == 12288 + 1500


def test_stated_live_sets_balance_at_every_row(real_report: Path) -> None:
    for name in ("report.json", "db.sqlite"):
        study = Study(parse_log(real_report / name))
        for op in range(len(study.timeline.ops)):
            for live in live_before(study, op):
                assert not is_violated(live)
                assert live.unexplained_bytes == 0
        assert len(next(iter(follow_all(study))).padded["DRAM"]) == len(study.timeline.ops)


def test_the_peaks_of_a_real_layer_are_those_that_ttnn_states(real_report: Path) -> None:
    report, database = (Study(parse_log(real_report / name)) for name in ("report.json", "db.sqlite"))

    assert {name: max(one.allocated) for name, one in report.readings.items()} == {
        "DRAM": 358528,
        "L1": 22528,
        L1_TOTAL: 69632,
    }
    assert max(database.readings["L1"].allocated) == 14336
    assert max(database.readings[L1_TOTAL].allocated) == 69632


def test_the_readings_agree_with_the_buffers_that_ttnn_lists_per_operation(real_report: Path) -> None:
    """`per_operation_buffers` is ttnn's own count, and is not what the reader uses."""
    document: dict[str, Any] = json.loads((real_report / "report.json").read_text())
    study = Study(parse_log(real_report / "report.json"))
    starts = [one["counter"] for one in document["graph"] if one["node_type"] == "function_start"
              and one["stacking_level"] == 1]  # fmt: skip
    rows = [op for op in range(len(study.timeline.ops)) if not study.name_of(op).startswith("program of")]

    for number, row in enumerate(rows[1:]):
        listed = document["per_operation_buffers"].get(str(starts[number]), [])
        for kind, memory in ((0, "DRAM"), (1, "L1")):
            stated = sum(one["max_size_per_bank"] for one in listed if one["buffer_type"] == kind)
            assert study.readings[memory].allocated[row] == stated


def test_a_tensor_that_outlives_its_last_use_is_named_with_the_line(real_report: Path) -> None:
    study = Study(parse_log(real_report / "report.json"))

    late = late_frees(study)

    heads = [one for one in late if "nlp_create_qkv_heads" in one.allocation.owner]
    assert len(heads) == 3
    assert not any(one.is_freed for one in heads)
    assert not any(one.allocation.owner.startswith("ttnn.linear %15") for one in late)


def test_a_database_of_an_older_generation_is_read(real_report: Path, tmp_path: Path) -> None:
    """Without ranks, captured graphs, lifetimes and chunks, as ttnn-visualizer's first schema was."""
    path = tmp_path / "db.sqlite"
    shutil.copy(real_report / "db.sqlite", path)
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("captured_graph", "tensor_lifetime", "buffer_chunks", "tensor_consumers", "tensor_producers"):
            connection.execute(f"DROP TABLE {table}")
        for table in ("operations", "buffers", "tensors", "input_tensors", "output_tensors", "stack_traces", "devices"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] != "rank"]
            connection.execute(f"CREATE TABLE old AS SELECT {', '.join(columns)} FROM {table}")  # noqa: S608 - fixed
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"ALTER TABLE old RENAME TO {table}")

    study = Study(parse_log(path))

    assert max(study.readings["L1"].allocated) == 14336
    assert max(study.readings[L1_TOTAL].allocated) == 14336
    assert any("attn.py:12" in call.location for call in study.timeline.calls)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'{"graph": [{"node_type": "function_start"', UnreadableFileError),
        (b'{"cluster_descriptor": 1, "graph": []}', InputError),
        (b"SQLite format 3\x00" + b"x" * 100, UnreadableFileError),
    ],
)
def test_what_is_damaged_or_empty_is_refused(tmp_path: Path, content: bytes, error: type[Exception]) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)

    with pytest.raises(error, match=r"report\.json"):
        parse_log(path)


def test_dataflow_buffers_of_a_capture_without_dispatch_belong_to_their_operation(tmp_path: Path) -> None:
    nodes = [  # the order of a capture by ttnn 0.81.1 with RunMode.NO_DISPATCH
        node("function_start", name="ttnn.rms_norm"),
        node("function_start", name="LayerNormDeviceOperation"),
        buffer("buffer_allocate", 0, 2048),
        node("circular_buffer_deallocate_all"),
        node("dataflow_buffer_allocate", size=8192, address=0, core_range_set="{[0-0 - 7-3]}"),
        node("dataflow_buffer_allocate", size=4096, address=0, core_range_set="{[0-0 - 3-7]}"),
        node("function_end", name="LayerNormDeviceOperation"),
        node("function_end", name="ttnn.rms_norm"),
        node("function_start", name="ttnn.add"),
        node("function_end", name="ttnn.add"),
    ]
    path = tmp_path / "capture.json"
    path.write_text(json.dumps([{**one, "counter": number} for number, one in enumerate(nodes)]))

    study = Study(parse_log(path))

    totals = list(study.readings[L1_TOTAL].allocated)
    names = [str(study.call(op)) for op in range(len(totals))]
    assert names[totals.index(max(totals))] == "program of LayerNormDeviceOperation()"
    assert max(totals) == 2048 + 8192 + 4096  # the cores that both ranges share have both
    assert totals[-1] == 2048
    assert {one.kind for one in study.timeline.core_buffers} == {"dataflow"}
    assert study.timeline.core_grid == (8, 8)


def test_arguments_producers_and_readers_of_a_real_report_are_read(real_report: Path) -> None:
    for name in ("report.json", "db.sqlite"):
        study = Study(parse_log(real_report / name))
        calls = {one.name: one for one in reversed(study.timeline.calls)}
        heads = calls["ttnn.experimental.nlp_create_qkv_heads"]
        assert heads.details == "%15 [1, 1, 128, 1536], num_heads=8, num_kv_heads=8, transpose_k_heads=False"
        assert "memory_config=INTERLEAVED in L1" in calls["ttnn.linear"].details

        uses = {one.value: one for one in tensor_uses(study)}
        made = study.call(uses["%17"].producer)
        readers = [study.call(op) for op in uses["%17"].consumers]
        assert made is not None
        assert made.name == heads.name
        assert [one.name for one in readers if one is not None] == ["ttnn.transformer.scaled_dot_product_attention"]
