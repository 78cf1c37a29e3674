import torch
from torch import nn

from tests.formula.derive.benches import observed, sample
from torchstone.formula.derive.observe import by_class, children_first


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def test_a_module_has_its_own_ops_and_its_children_and_all_of_them_add_up() -> None:
    root, *inner = observed([sample(Block(), torch.zeros(2, 5, 8))])

    assert [child.path for child in root.children] == ["layers.0", "layers.1", "layers.2"]
    assert {op.signature.op for op in root.ops} == {"aten.relu.default"}
    assert root.whole.flops == root.own.flops + sum(one.whole.flops for one in inner)
    assert root.whole.reads == root.own.reads + sum(one.whole.reads for one in inner)
    assert root.weight_bytes == 3 * 8 * 8 * 4


def test_inner_classes_come_before_those_around_them() -> None:
    grouped = by_class(observed([sample(Block(), torch.zeros(2, 8))]))

    assert [name.rpartition(".")[2] for name in children_first(grouped)] == ["Linear", "Block"]


def test_an_op_without_a_price_is_known_to_everything_around_it() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    seen = observed([sample(nn.Sequential(Odd()), torch.zeros(4))])

    assert [bool(one.unpriced) for one in seen] in ([True, True], [False, False])
    assert seen[0].unpriced == seen[1].unpriced
