import msgspec

from tests.cost.devices import device
from torchstone.record.cost import Hardware


def test_a_device_survives_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(device()), type=Hardware) == device()
