import pytest
import torch
from torch import Tensor, nn

from tests.backends.conformance import HeavyBackend
from torchstone.backends.stablehlo import StableHlo, overloads_that_torch_dropped

pytestmark = pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")


class TestStableHlo(HeavyBackend):
    backend_class = StableHlo
    extra = "stablehlo"
    stage = "stablehlo"
    word = "stablehlo.dot_general"


class ConstantBeforeBuffer(nn.Module):
    """Exported, the constant comes before the buffer that no checkpoint keeps, as in a Llama with an empty cache."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([3.0, 4.0]))
        self.register_buffer("scale", torch.tensor([5.0, 7.0, 11.0]), persistent=False)
        self.empty = torch.tensor([])

    def forward(self, x: Tensor) -> Tensor:
        filled = torch.cat([self.empty, torch.tensor([2.0, 13.0, 17.0]), x])
        return filled[:3] * self.scale + self.weight.sum()


@pytest.mark.heavy
def test_constants_and_buffers_come_in_the_order_of_the_graph() -> None:
    pytest.importorskip("torchax", reason="pip install 'torchstone[stablehlo]'")
    module, x = ConstantBeforeBuffer(), torch.tensor([19.0])

    (result,) = torch.utils._pytree.tree_leaves(StableHlo().compile(module, (x,), {})(x))

    assert result.tolist() == [17.0, 98.0, 194.0]


def test_dropped_overloads_exist_only_while_torchax_is_imported() -> None:
    with overloads_that_torch_dropped():
        assert str(torch.ops.aten.prod.no_such_dimname) == "aten.prod.no_such_dimname"
        with pytest.raises(AttributeError):
            _ = torch.ops.aten.prod.no_such_overload

    with pytest.raises(AttributeError):
        _ = torch.ops.aten.prod.no_such_dimname
