import json

import msgspec
import pytest

from tests.configs.real_files import real_file
from tests.configs.samples import MACHINE, entry_v2, execution, master_v2, new_tensor
from torchstone.configs.export import arguments_json, machine_json, write_master
from torchstone.configs.import_file import import_path
from torchstone.configs.ttnn_master import read_master
from torchstone.record.config import Configuration, ForeignName, SeenConfiguration, in_order

ARGUMENTS = {"arg0": new_tensor([1, 32]), "alpha": float("-inf"), "arg1": [1, 2.5, None]}
DOCUMENT = master_v2(
    entry_v2(ARGUMENTS, config_hash="a" * 64, executions=[execution(trace_uid="u1"), execution(trace_uid="u2")]),
    entry_v2({"arg0": 1}, config_hash="b" * 64, status="observed"),
)


def entries(document: dict[str, object]) -> dict[str, str]:
    operations = document["operations"]
    assert isinstance(operations, dict)
    return {
        entry["config_hash"]: json.dumps([op, entry], sort_keys=True)
        for op, content in operations.items()
        for entry in content["configurations"]
    }


def test_entries_are_written_as_they_were_read() -> None:
    exported = write_master(read_master(DOCUMENT, source="m", run="1").seen)

    assert entries(json.loads(exported.text)) == entries(DOCUMENT)
    assert exported.configurations == 2


def test_importing_an_export_gives_the_same_records() -> None:
    seen = read_master(DOCUMENT, source="m", run="1").seen

    again = read_master(json.loads(write_master(seen).text), source="m", run="2").seen

    assert sorted(map(repr, map(in_order, again))) == sorted(map(repr, map(in_order, seen)))


def test_the_metadata_counts_what_is_there() -> None:
    document = json.loads(write_master(read_master(DOCUMENT, source="m", run="1").seen).text)

    assert document["metadata"]["total_configurations"] == 2
    assert document["metadata"]["operations_summary"] == {"ttnn.add": 2}


def test_configurations_of_other_formats_are_left_out_and_counted() -> None:
    own = SeenConfiguration(configuration=Configuration(op="aten.mm.default"))
    old = SeenConfiguration(configuration=Configuration(op="ttnn.add"), foreign=(ForeignName(format="ttnn_master_v1"),))

    exported = write_master([own, old, old])

    assert exported.configurations == 0
    assert exported.left_out == {"aten ops": 1, "ttnn_master_v1": 2}


def test_a_verified_hash_is_chosen_before_others() -> None:
    names = (
        ForeignName(format="ttnn_master_v2", hash="a" * 64),
        ForeignName(format="ttnn_master_v2", hash="b" * 64, rule="raw"),
    )
    seen = SeenConfiguration(configuration=Configuration(op="ttnn.add"), foreign=names)

    assert "b" * 64 in write_master([seen]).text


def test_arguments_and_machine_come_back_as_json() -> None:
    (one, _) = read_master(DOCUMENT, source="m", run="1").seen

    assert arguments_json(one.configuration) == ARGUMENTS
    assert machine_json(one) == MACHINE
    assert machine_json(msgspec.structs.replace(one, occurrences=())) == MACHINE


@pytest.mark.parametrize(
    "name", ["ttnn/master_v2_llama32_1b_n300_2026-05.json", "ttnn/master_v2_deepseek_v3_galaxy_2026-03.json"]
)
def test_the_entries_of_real_masters_are_written_as_they_were(name: str) -> None:
    path = real_file(name)

    exported = write_master(import_path(path).seen)

    assert entries(json.loads(exported.text)) == entries(json.loads(path.read_bytes()))
