import json
from typing import Any

import pytest

from tests.configs.samples import MACHINE, new_tensor
from torchstone.configs.ttnn_master import RULES, HashRule, hardware_of, mesh_of, verified_rule

OP = "ttnn.plus_one"
ARGUMENTS: dict[str, Any] = {
    "arg0": {
        "type": "ttnn.Tensor",
        "layout": "Layout.ROW_MAJOR",
        "original_dtype": "DataType.UINT32",
        "original_shape": [1, 32],
        "storage_type": "StorageType.DEVICE",
        "memory_config": {
            "buffer_type": "BufferType.DRAM",
            "hash": 46082544174525093,
            "interleaved": True,
            "is_sharded": False,
            "memory_layout": "TensorMemoryLayout.INTERLEAVED",
            "shard_spec": None,
        },
        "tensor_placement": {
            "distribution_shape": "[2]",
            "mesh_device_shape": "[1, 2]",
            "placement": "['PlacementReplicate']",
        },
    }
}
PUBLISHED = "2c81460873c0bbf7d0443bb6768aefcb0b48cbb2b472ce4ab7452267d2ff165d"
BY_NAME = {rule.name: rule for rule in RULES}


def test_a_published_hash_is_made_again() -> None:
    rule = verified_rule(PUBLISHED, OP, ARGUMENTS, MACHINE, RULES)

    assert rule is not None
    assert rule.name == "tidied"


def test_with_the_mesh_it_is_the_other_published_hash() -> None:
    made = BY_NAME["tidied, mesh"].hash(OP, ARGUMENTS, MACHINE)

    assert (made[:8], made[-4:]) == ("04566664", "c626")


def test_no_two_rules_have_the_same_name() -> None:
    assert len(BY_NAME) == len(RULES)


@pytest.mark.parametrize(
    ("rule", "arguments", "same_as"),
    [
        ("raw, inf as number", {"arg1": "-inf"}, {"arg1": float("-inf")}),
        ("tidied, inf as text", {"arg1": float("-inf")}, {"arg1": "-inf"}),
        ("tidied, shape as list", {"a": {"type": "Shape", "value": "Shape([1, 32])"}}, {"a": [1, 32]}),
        ("tidied, no empty worker cores", {"a": {"x": 1, "allowed_worker_cores": None}}, {"a": {"x": 1}}),
        ("tidied", {"a": "<semaphore at 0x7f21>"}, {"a": "<semaphore>"}),
        ("tidied", {"a": {"shard_spec": None}}, {"a": {"shard_spec": "None"}}),
    ],
)
def test_a_rule_hashes_one_spelling_like_the_other(rule: str, arguments: object, same_as: object) -> None:
    raw = BY_NAME["raw"]

    assert BY_NAME[rule].hash(OP, arguments, {}) == raw.hash(OP, same_as, {})
    assert raw.hash(OP, arguments, {}) != raw.hash(OP, same_as, {})


def test_a_rule_leaves_the_arguments_alone() -> None:
    before = json.dumps(ARGUMENTS)

    for rule in RULES:
        rule.hash(OP, ARGUMENTS, MACHINE)

    assert json.dumps(ARGUMENTS) == before


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_finds_its_own_hashes(rule: HashRule) -> None:
    arguments = {"arg0": new_tensor([1, 32]), "arg1": "-inf", "arg2": {"type": "Shape", "value": "Shape([2])"}}
    made = rule.hash(OP, arguments, MACHINE)

    found = verified_rule(made, OP, arguments, MACHINE, RULES)

    assert found is not None
    assert found.hash(OP, arguments, MACHINE) == made


def test_a_hash_of_no_rule_is_not_verified() -> None:
    assert verified_rule("0" * 64, OP, ARGUMENTS, MACHINE, RULES) is None


@pytest.mark.parametrize(
    ("machine", "hardware"),
    [
        ({}, None),
        ({"board_type": "Wormhole"}, ["Wormhole", None, 1]),
        ({"board_type": "B", "device_series": ["n150", "n300"], "card_count": 4}, ["B", "n150", 4]),
        ({"board_type": "B", "device_series": []}, ["B", None, 1]),
    ],
)
def test_the_hardware_of_a_machine(machine: dict[str, Any], hardware: object) -> None:
    assert hardware_of(machine) == hardware


def test_the_mesh_of_a_machine_is_its_shape_or_its_count() -> None:
    shape = {"mesh_shape": [1, 2], "placement_type": None, "shard_dim": None}
    count = {"mesh_shape": None, "device_count": 8, "placement_type": None, "shard_dim": None}

    assert mesh_of({"mesh_device_shape": [1, 2], "device_count": 2}) == shape
    assert mesh_of({"device_count": 8}) == count
    assert mesh_of({}) is None
