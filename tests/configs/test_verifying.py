import msgspec

from tests.configs.samples import MACHINE, entry_v2, master_v2, new_tensor
from torchstone.configs.export import check_hashes
from torchstone.configs.ttnn_master import RULES, read_master
from torchstone.record.config import SeenConfiguration
from torchstone.record.value import Argument

ARGUMENTS = {"arg0": new_tensor([1, 32]), "arg1": "inf"}


def seen() -> SeenConfiguration:
    entry = entry_v2(ARGUMENTS, config_hash=RULES[2].hash("ttnn.add", ARGUMENTS, MACHINE))
    (one,) = read_master(master_v2(entry), source="m", run="1").seen
    return one


def test_a_hash_is_made_again_from_the_record_alone() -> None:
    (check,) = check_hashes([seen()])

    assert (check.rule, check.op) == (RULES[2].name, "ttnn.add")


def test_a_changed_argument_is_found() -> None:
    one = seen()
    changed = msgspec.structs.replace(one.configuration, arguments=(Argument(name="arg0", value=1, position=0),))

    (check,) = check_hashes([msgspec.structs.replace(one, configuration=changed)])

    assert check.rule == ""


def test_without_foreign_hashes_there_is_nothing_to_check() -> None:
    assert list(check_hashes([msgspec.structs.replace(seen(), foreign=())])) == []
