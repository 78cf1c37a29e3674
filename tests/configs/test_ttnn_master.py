from collections import Counter

import pytest

from tests.configs.real_files import real_file
from tests.configs.samples import (
    MACHINE,
    SOURCE,
    entry_v2,
    execution,
    master_v1,
    master_v2,
    new_tensor,
    old_arguments,
    sharded_argument,
)
from torchstone.backends.ttnn_trace_text import NOT_RECORDED
from torchstone.configs.exchange import Imported
from torchstone.configs.import_file import import_path
from torchstone.configs.ttnn_master import RULES, is_master, model_of, read_master
from torchstone.record.config import TraceFormat
from torchstone.record.value import json_from_value

ARGUMENTS = {"arg0": new_tensor([1, 32]), "arg1": 2, "memory_config": None, "arg10": 5}


def read(document: dict[str, object]) -> Imported:
    return read_master(document, source="master.json", run="1")


def test_the_first_layout_has_lists_of_arguments_and_no_source() -> None:
    imported = read({"operations": {"ttnn::add": {"configurations": [old_arguments()]}}})

    (one,) = imported.seen
    assert imported.runs[0].format is TraceFormat.TTNN_MASTER_V0
    assert [argument.name for argument in one.configuration.arguments] == ["arg0", "arg1", "arg2", "arg3"]
    assert [place.source for place in one.occurrences] == ["master.json"]


def test_a_list_of_calls_is_counted() -> None:
    calls = [{"operation": "ttnn::add", "arguments": old_arguments()}] * 3

    (one,) = read({"content": [*calls]}).seen

    assert one.calls == 3


def test_version_one_keeps_its_values_as_they_stand() -> None:
    (one,) = read(master_v1({"arguments": old_arguments(), "source": SOURCE})).seen

    values = {argument.name: json_from_value(argument.value) for argument in one.configuration.arguments}
    assert (values["arg1"], values["arg2"], values["arg3"]) == ("nullopt", "[0, 2, 3, 1]", "0")
    assert one.configuration.op == "ttnn.add"
    assert one.foreign[0].op == "ttnn::add"
    assert one.occurrences[0].model == "acme/Tiny-1B"
    assert one.occurrences[0].count is None


def test_damaged_arguments_are_repaired_in_their_place() -> None:
    entry = {"arguments": [sharded_argument(), {"arg1": "0"}], "source": SOURCE}

    (one,) = read(master_v1(entry)).seen

    assert [argument.name for argument in one.configuration.arguments] == ["arg0", "arg1"]
    assert [damage.repaired for damage in one.damage] == [True]


@pytest.mark.parametrize(
    ("more", "sources", "machines"),
    [
        ({"source": ["a.py", "b.py"], "machine_info": [MACHINE, {"board_type": "B"}]}, ["a.py", "b.py"], 2),
        ({"source": "a.py", "machine_info": [MACHINE]}, ["a.py"], 1),
        ({"contexts": [{"source": ["a.py"], "machine_info": [MACHINE]}, {"source": ["b.py"]}]}, ["a.py", "b.py"], 1),
    ],
)
def test_version_one_and_a_half_knows_machines(more: dict[str, object], sources: list[str], machines: int) -> None:
    imported = read(master_v1({"arguments": old_arguments(), **more}))

    (one,) = imported.seen
    assert imported.runs[0].format is TraceFormat.TTNN_MASTER_V1_5
    assert [place.source for place in one.occurrences] == sources
    assert sum(place.details is not None for place in one.occurrences) == machines
    assert json_from_value(one.configuration.machine)["device_series"] == "n300"


def test_version_two_has_positional_arguments_first_and_in_order() -> None:
    (one,) = read(master_v2(entry_v2(ARGUMENTS))).seen

    names = [(argument.name, argument.position) for argument in one.configuration.arguments]
    assert names == [("arg0", 0), ("arg1", 1), ("arg10", 10), ("memory_config", None)]


def test_version_two_names_runs_and_counts() -> None:
    places = [execution(trace_uid="u1", count=3), execution(trace_uid="u2", count=4)]

    (one,) = read(master_v2(entry_v2(ARGUMENTS, executions=places))).seen

    assert [(place.run, place.count) for place in one.occurrences] == [("u1", 3), ("u2", 4)]


def test_a_file_from_the_database_is_told_by_its_run_numbers() -> None:
    imported = read(master_v2(entry_v2(ARGUMENTS, executions=[execution(trace_run_ids=[25, 26])])))

    assert imported.runs[0].format is TraceFormat.TTNN_MASTER_V2_DB
    assert imported.seen[0].occurrences[0].run == "25,26"


def test_the_machine_is_part_of_what_a_configuration_is() -> None:
    other = MACHINE | {"mesh_device_shape": [2, 4]}

    one, twin = read(master_v2(entry_v2(ARGUMENTS), entry_v2(ARGUMENTS, executions=[execution(machine=other)]))).seen

    assert one.key != twin.key


def test_a_hash_is_verified_and_its_rule_named() -> None:
    rule = RULES[0]
    good = entry_v2(ARGUMENTS, config_hash=rule.hash("ttnn.add", ARGUMENTS, MACHINE))
    bad = entry_v2({"arg0": 1}, config_hash="0" * 64)

    one, other = read(master_v2(good, bad)).seen

    assert one.foreign[0].rule == rule.name
    assert (other.foreign[0].hash, other.foreign[0].rule) == ("0" * 64, "")


def test_what_else_stands_in_an_entry_is_kept() -> None:
    (one,) = read(master_v2(entry_v2(ARGUMENTS, status="observed"))).seen

    assert json_from_value(one.foreign[0].details) == {"config_id": 7, "status": "observed"}


def test_an_entry_without_arguments_is_named() -> None:
    imported = read(master_v2(entry_v2(ARGUMENTS), {"config_id": 8}))

    assert len(imported.seen) == 1
    assert [part.where for part in imported.unread] == ["ttnn.add, configuration 1"]


def test_the_metadata_is_kept_with_the_run() -> None:
    assert json_from_value(read(master_v2(entry_v2(ARGUMENTS))).runs[0].details) == {"models": [SOURCE]}


@pytest.mark.parametrize(
    ("document", "yes"), [({"operations": {}}, True), ({"content": []}, True), ({"operations": []}, False), ([], False)]
)
def test_a_master_is_known_by_its_look(document: object, yes: bool) -> None:  # noqa: FBT001 - a case of the table
    assert is_master(document) is yes


@pytest.mark.parametrize(
    ("source", "model"),
    [
        ("models/demo.py::test [HF_MODEL:a/b]", "a/b"),
        ("demo.py [LLAMA_DIR:/weights/llama]", "/weights/llama"),
        ("demo.py [BATCH:1]", "demo.py"),
        ("demo.py::test_x", "demo.py::test_x"),
    ],
)
def test_the_model_of_a_source(source: str, model: str) -> None:
    assert model_of(source) == model


def test_the_real_first_master_is_read_whole() -> None:
    imported = import_path(real_file("ttnn/master_v1_2025-11.json"))
    damage = [broken for one in imported.seen for broken in one.damage if broken.kind not in NOT_RECORDED]

    assert len({one.key for one in imported.seen}) == 1079
    assert len({one.configuration.op for one in imported.seen}) == 35
    assert imported.unread == ()
    assert len(damage) == 627
    assert sum(broken.repaired for broken in damage) == 573
    assert Counter(broken.kind for broken in damage if not broken.repaired) == {
        "contents left out by the tracer as {...}": 54
    }


@pytest.mark.parametrize(
    ("name", "configurations", "calls", "rules"),
    [
        ("ttnn/master_v2_llama32_1b_n300_2026-05.json", 609, 231_326, {"tidied": 609}),
        ("ttnn/master_v2_deepseek_v3_galaxy_2026-03.json", 338, 195_806, {"raw": 334, "raw, inf as number": 4}),
    ],
)
def test_every_hash_of_the_real_masters_is_verified(
    name: str, configurations: int, calls: int, rules: dict[str, int]
) -> None:
    imported = import_path(real_file(name))

    assert len({one.key for one in imported.seen}) == configurations
    assert sum(one.calls for one in imported.seen) == calls
    assert Counter(foreign.rule for one in imported.seen for foreign in one.foreign) == rules
