from typing import Any

import pytest

from tests.sweep.builders import call, mm, tensor, vector
from torchstone.record.config import Configuration
from torchstone.record.value import Atom
from torchstone.sweep.child.validity import check_vectors, warm_up
from torchstone.sweep.vectors import payload_of


def checked(configuration: Configuration) -> dict[str, Any]:
    (answer,) = check_vectors({"calls": [payload_of(vector(configuration))]})
    return answer


def test_a_call_that_torch_takes_is_valid() -> None:
    warm_up({})

    assert checked(mm()) == {"role": "compute", "valid": True, "reason": ""}


def test_a_call_that_torch_refuses_says_why() -> None:
    answer = checked(call("aten.mm.default", self_=tensor(2, 3), mat2=tensor(4, 5)))

    assert answer["valid"] is False
    assert "RuntimeError" in answer["reason"]


@pytest.mark.parametrize("op", ["aten.no_such.default", "nonsense"])
def test_an_op_that_torch_does_not_have_is_not_valid(op: str) -> None:
    assert checked(call(op))["valid"] is False


def test_an_op_that_reads_values_cannot_be_told_on_the_meta_device() -> None:
    assert checked(call("aten.nonzero.default", self_=tensor(3)))["valid"] is None


def test_a_device_among_the_arguments_stands_for_the_meta_device() -> None:
    zeros = call("aten.new_zeros.default", self_=tensor(2), size=Atom(kind="ellipsis", text="..."))
    assert checked(zeros)["valid"] is False
    copy = call("aten._to_copy.default", self_=tensor(2), device=Atom(kind="device", text="cuda:0"))
    assert checked(copy) == {"role": "compute", "valid": True, "reason": ""}
