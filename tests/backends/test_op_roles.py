from typing import Any

import pytest
import torch

from torchstone.backends.op_info import Role, role_of

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("op", "role"),
    [
        (aten.mm.default, Role.COMPUTE),
        (aten._to_copy.default, Role.COMPUTE),
        (aten.add_.Tensor, Role.COMPUTE),
        (aten.add.out, Role.COMPUTE),
        (aten.view.default, Role.VIEW),
        (aten.split.Tensor, Role.VIEW),
        (aten.zeros.default, Role.FACTORY),
        (aten.arange.start, Role.FACTORY),
        (aten.full_like.default, Role.FACTORY),
        (aten.new_empty.default, Role.FACTORY),
        (aten.native_dropout.default, Role.RANDOM),
        (aten.uniform_.default, Role.RANDOM),
        (aten.randn.default, Role.RANDOM),
        (aten.rand_like.default, Role.RANDOM),
    ],
)
def test_the_schema_tells_what_an_op_does(op: Any, role: Role) -> None:
    assert role_of(op) is role


def test_a_higher_order_op_has_no_schema_to_tell_by() -> None:
    assert role_of(torch.ops.higher_order.cond) is Role.UNKNOWN
