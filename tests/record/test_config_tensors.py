from tests.configs.samples import new_tensor
from torchstone.record.config import ConfigTensor, Configuration, tensors_of
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Fields, Items, value_from_json


def test_tensors_are_found_in_lists_too() -> None:
    spec = TensorSpec(shape=(2, 3), dtype="float32")
    call = Configuration(
        op="aten.cat.default",
        arguments=(Argument(name="tensors", value=Items(kind="list", items=(spec,))), Argument(name="dim", value=0)),
    )

    assert tensors_of(call) == (ConfigTensor(argument="tensors", dtype="float32", shape=(2, 3)),)


def test_tensors_of_other_tools_are_found_too() -> None:
    call = Configuration(
        op="ttnn.concat",
        arguments=(
            Argument(name="arg0", value=value_from_json([new_tensor([1, 32]), new_tensor([1, 64], dtype="INT32")])),
            Argument(name="arg1", value=value_from_json({"nested": {"deep": new_tensor([7])}})),
            Argument(name="arg2", value=Fields(class_name="ttnn.Tensor", fields=(("shape", "[3]"),))),
            Argument(
                name="arg3", value=Fields(class_name="Pair", fields=(("one", TensorSpec(shape=(), dtype="int8")),))
            ),
        ),
    )

    found = [(tensor.argument, tensor.dtype, tensor.shape) for tensor in tensors_of(call)]
    assert found == [
        ("arg0", "BFLOAT16", (1, 32)),
        ("arg0", "INT32", (1, 64)),
        ("arg1", "BFLOAT16", (7,)),
        ("arg2", "", (3,)),
        ("arg3", "int8", ()),
    ]
