from torchstone.record.config import Configuration
from torchstone.record.config_tensors import ConfigTensor, tensors_of
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Items


def test_tensors_are_found_in_lists_too() -> None:
    spec = TensorSpec(shape=(2, 3), dtype="float32")
    call = Configuration(
        op="aten.cat.default",
        arguments=(Argument(name="tensors", value=Items(kind="list", items=(spec,))), Argument(name="dim", value=0)),
    )

    assert tensors_of(call) == (ConfigTensor(argument="tensors", dtype="float32", shape=(2, 3)),)
