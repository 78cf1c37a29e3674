import json

import msgspec
import pytest

from tests.configs.real_files import real_file
from tests.configs.samples import entry_v2, execution, master_v2, new_tensor
from torchstone.configs.families import families_of
from torchstone.configs.import_file import import_path
from torchstone.configs.ttnn_master import read_master
from torchstone.record.config import SeenConfiguration
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument


def seen(arguments: dict[str, object], *, count: int = 1) -> SeenConfiguration:
    entry = entry_v2(arguments, executions=[execution(count=count)])
    (one,) = read_master(master_v2(entry), source="m", run="1").seen
    return one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"batch_idx": 3}, {"batch_idx": 4}),
        ({"a": "0.5"}, {"a": "7"}),
        ({"a": {"type": "set", "value": "{MeshCoordinate([2, 2])}"}}, {"a": {"type": "set", "value": "{}"}}),
        ({"a": new_tensor([1, 32])}, {"a": new_tensor([1, 32], placement="PlacementReplicate")}),
        ({"a": [1, 2]}, {"a": [3, 4]}),
        ({"a": {"hash": 1, "x": "y"}}, {"a": {"hash": 2, "x": "y"}}),
    ],
)
def test_what_differs_in_a_number_or_a_place_only_is_one_family(
    one: dict[str, object], other: dict[str, object]
) -> None:
    (family,) = families_of([seen(one), seen(other)])

    assert len(family.members) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": new_tensor([1, 32])}, {"a": new_tensor([1, 64])}),
        ({"a": new_tensor([1, 32])}, {"a": new_tensor([1, 32], dtype="BFLOAT8_B")}),
        ({"a": 1}, {"b": 1}),
        ({"a": "x"}, {"a": "y"}),
        ({"a": None}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}),
    ],
)
def test_what_a_kernel_must_tell_apart_stays_apart(one: dict[str, object], other: dict[str, object]) -> None:
    assert len(families_of([seen(one), seen(other)])) == 2


def test_shapes_of_our_own_tensors_stay_apart() -> None:
    base = seen({})
    ours = [
        msgspec.structs.replace(
            base,
            configuration=msgspec.structs.replace(
                base.configuration, arguments=(Argument(name="self", value=TensorSpec(shape=(size,), dtype="int8")),)
            ),
        )
        for size in (1, 2)
    ]

    assert len(families_of(ours)) == 2


def test_the_most_called_comes_first() -> None:
    families = families_of([seen({"a": "x"}, count=1), seen({"b": 1}, count=3), seen({"b": 2}, count=9)])

    assert [family.calls for family in families] == [12, 1]
    assert [member.calls for member in families[0].members] == [9, 3]


@pytest.mark.parametrize(
    ("name", "families"),
    [
        ("ttnn/master_v2_llama32_1b_n300_2026-05.json", 461),
        ("ttnn/master_v2_deepseek_v3_galaxy_2026-03.json", 199),
    ],
)
def test_real_masters_shrink_to_their_families(name: str, families: int) -> None:
    found = families_of(import_path(real_file(name)).seen)

    assert len(found) <= families
    assert json.dumps([len(family.members) for family in found])
