import pytest
import torch

from tests.backends.nets import nested, two_layers
from torchstone.backends.faulty import Faulty
from torchstone.backends.protocol import Unsupported
from torchstone.numerics.verdict import judge


def test_without_a_fault_it_is_eager() -> None:
    module, args, kwargs = nested()

    result = Faulty().compile(module, args, kwargs)(*args, **kwargs)

    assert judge(module(*args, **kwargs), result)["passed"]


@pytest.mark.parametrize("fault", ["wrong", "scaled", "nan"])
def test_a_wrong_op_is_seen_in_the_result(fault: str) -> None:
    module, x = two_layers()
    backend = Faulty(fault=fault, op="aten.addmm.default", nth=2)

    assert not judge(module(x), backend.compile(module, (x,), {})(x))["passed"]


def test_several_faults_can_be_planted() -> None:
    module, x = two_layers()
    backend = Faulty(faults=[{"fault": "slow", "seconds": 0.0}, {"fault": "unsupported", "op": "aten.gelu.*"}])

    with pytest.raises(Unsupported, match=r"no rule for aten.gelu.default"):
        backend.compile(module, (x,), {})(x)


def test_it_keeps_no_gradients() -> None:
    module, x = two_layers()

    assert not Faulty().compile(module, (x,), {})(x.requires_grad_()).requires_grad
    assert torch.is_grad_enabled()
