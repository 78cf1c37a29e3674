import torch

from tests.backends.nets import nested, two_layers
from torchstone.backends.torch_compile import AotEager
from torchstone.numerics.verdict import judge


def test_traced_modules_compute_the_same() -> None:
    module, args, kwargs = nested()
    backend = AotEager()
    backend.warm_up()

    verdict = judge(module(*args, **kwargs), backend.compile(module, args, kwargs)(*args, **kwargs))

    assert verdict["passed"], verdict["reason"]
    backend.reset()


def test_the_export_is_the_aten_graph() -> None:
    module, x = two_layers()

    assert "aten.gelu" in AotEager().export(module, (x,), {})["aten"]


def test_it_is_usable_wherever_torch_is() -> None:
    assert AotEager(fullgraph=True).availability().version == f"torch {torch.__version__}"
