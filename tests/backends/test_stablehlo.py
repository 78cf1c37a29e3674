import pytest
import torch

from tests.backends.conformance import HeavyBackend
from torchstone.backends.stablehlo import StableHlo, overloads_that_torch_dropped

pytestmark = pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")


class TestStableHlo(HeavyBackend):
    backend_class = StableHlo
    extra = "stablehlo"
    stage = "stablehlo"
    word = "stablehlo.dot_general"


def test_dropped_overloads_exist_only_while_torchax_is_imported() -> None:
    with overloads_that_torch_dropped():
        assert str(torch.ops.aten.prod.no_such_dimname) == "aten.prod.no_such_dimname"
        with pytest.raises(AttributeError):
            _ = torch.ops.aten.prod.no_such_overload

    with pytest.raises(AttributeError):
        _ = torch.ops.aten.prod.no_such_dimname
