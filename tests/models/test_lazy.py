import pytest
import torch
from torch import Tensor, nn

from torchstone.errors import ModelError
from torchstone.models.inputs import inputs_from_value
from torchstone.models.load_model import load
from torchstone.models.prepare import initialize_lazy_parameters, lazy_tensors


def lazy_net() -> nn.Sequential:
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))


def test_what_has_no_shape_is_named() -> None:
    assert lazy_tensors(lazy_net())[:2] == ["0.weight", "0.bias"]
    assert lazy_tensors(nn.Linear(2, 2)) == []


def test_a_lazy_model_is_loaded_with_its_shapes() -> None:
    model, _ = load(lazy_net(), inputs=torch.ones(1, 3, 8, 8))

    assert lazy_tensors(model) == []
    assert model[3].weight.shape == (2, 4 * 6 * 6)  # type: ignore[index]


def test_a_first_run_that_fails_is_told() -> None:
    with pytest.raises(ModelError, match=r"gives 0\.weight its shape, raised RuntimeError"):
        load(lazy_net(), inputs=torch.ones(3))


def test_a_lazy_module_that_does_not_run_is_told() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.LazyLinear(2)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.used(x)
            return result

    with pytest.raises(ModelError, match=r"unused\.weight is lazy"):
        initialize_lazy_parameters(Unused(), inputs_from_value(torch.ones(1, 2), origin=""))
