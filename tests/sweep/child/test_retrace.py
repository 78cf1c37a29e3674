from typing import Any

from tests.sweep.builders import call, mm, tensor, vector
from torchstone.record.config import Configuration
from torchstone.record.value import Items
from torchstone.sweep.child.retrace import retrace
from torchstone.sweep.vectors import payload_of


def retraced(configuration: Configuration, **changes: Any) -> dict[str, Any]:
    return retrace({**payload_of(vector(configuration)), **changes})


def test_a_vector_that_runs_what_was_traced_is_a_match() -> None:
    strided = call("aten.mm.default", self_=tensor(2, 3, stride=(1, 2)), mat2=tensor(3, 4, offset=5))

    assert retraced(mm()) == {"result": "match", "differences": [], "incidental": 0}
    assert retraced(strided)["result"] == "match"


def test_lists_of_tensors_match_too() -> None:
    cat = call("aten.cat.default", tensors=Items(kind="list", items=(tensor(2), tensor(3))), dim=0)

    assert retraced(cat)["result"] == "match"


def test_a_composite_op_that_torch_takes_apart_is_missing() -> None:
    answer = retraced(call("aten.linear.default", input=tensor(2, 3), weight=tensor(4, 3), bias=None))

    assert answer["result"] == "missing"
    assert "aten" in answer["differences"][0]


def test_what_eager_pytorch_refuses_is_not_told() -> None:
    answer = retraced(call("aten.mm.default", self_=tensor(2, 3), mat2=tensor(4, 5)))

    assert answer["result"] == "not told"


def test_an_in_place_op_runs_on_a_copy_and_its_offset_differs() -> None:
    answer = retraced(call("aten.add_.Tensor", self_=tensor(3, offset=4), other=tensor(3), alpha=1))

    assert answer["result"] == "diff"
    assert "offset" in answer["differences"][0]
