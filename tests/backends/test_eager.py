import torch

from tests.backends.nets import nested, two_layers
from torchstone.backends.eager import Eager


def test_eager_is_the_module_itself() -> None:
    module, x = two_layers()
    backend = Eager()
    backend.warm_up()

    result = backend.compile(module, (x,), {})(x)

    assert torch.equal(result, module(x))
    assert not result.requires_grad
    backend.reset()


def test_eager_is_usable_wherever_torch_is() -> None:
    found = Eager().availability()

    assert found.usable
    assert found.version == f"torch {torch.__version__}"


def test_the_export_is_the_graph_of_aten_ops_even_for_nested_inputs() -> None:
    module, args, kwargs = nested()

    stages = Eager().export(module, args, kwargs)

    assert list(stages) == ["aten"]
    assert "torch.ops.aten.linear.default" in stages["aten"]
    assert "torch.ops.aten.cat.default" in stages["aten"]
