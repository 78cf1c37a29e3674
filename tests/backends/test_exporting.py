import pytest
import torch
from torch import Tensor, nn

from tests.backends.nets import nested
from torchstone.backends.export import exported_program
from torchstone.backends.protocol import CompileFailed
from torchstone.numerics.pytree import flatten


class DependsOnValues(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if float(x.sum()) > 0 else x


def test_an_exported_program_gives_the_outputs_in_the_shape_eager_gives_them() -> None:
    module, args, kwargs = nested()

    exported = exported_program(module, args, kwargs)
    run = exported.nested(lambda tensors: exported.program.module()(*tensors))

    given, expected = flatten(run(*args, **kwargs)), flatten(module(*args, **kwargs))
    assert type(run(*args, **kwargs)) is type(module(*args, **kwargs))
    assert all(torch.equal(one, two) for one, two in zip(given[0], expected[0], strict=True))


def test_what_torch_export_cannot_take_is_a_failure_to_compile() -> None:
    with pytest.raises(CompileFailed, match=r"^torch.export cannot take it: "):
        exported_program(DependsOnValues(), (torch.ones(2),), {})
