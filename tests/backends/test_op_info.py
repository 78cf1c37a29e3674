from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchstone.backends.op_info import Role, ops_called, ops_named_in, role_of, with_overloads


class SortsAndAdds(nn.Module):
    def forward(self, x: Tensor, *, more: Tensor) -> Tensor:
        return torch.sort(x, stable=True).values + more


def test_ops_are_found_in_messages_in_all_spellings() -> None:
    text = "aten::mm, aten.add.Tensor, <OpOverload(op='aten.add', overload='Tensor')> and torch.ops.aten.mm, but not mm"

    assert ops_named_in(text) == ("aten.add.Tensor", "aten.mm")
    assert ops_named_in("<OpOverload(op='mylib.scan', overload='default')>") == ("mylib.scan.default",)


def test_a_name_without_an_overload_gets_those_that_are_known() -> None:
    known = ("aten.sort.stable", "aten.add.Tensor", "aten.sort.default", "aten.sorted.default")

    assert with_overloads(["aten.sort"], known) == ("aten.sort.stable", "aten.sort.default")
    assert with_overloads(["aten.add.Tensor"], known) == ("aten.add.Tensor",)
    assert with_overloads(["aten.histc"], known) == ("aten.histc",)


def test_the_ops_of_a_module_are_found_by_running_it() -> None:
    found = ops_called(SortsAndAdds(), (torch.ones(3),), {"more": torch.ones(3)})

    assert found == ("aten.sort.stable", "aten.add.Tensor")


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
