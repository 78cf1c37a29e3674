import torch
from torch import Tensor, nn

from torchstone.backends.op_info import ops_called, ops_named_in, with_overloads


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
