import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.reference.nets import Raises
from torchstone.errors import ModelError
from torchstone.models.inputs import Inputs
from torchstone.record.reference import FunctionUse
from torchstone.reference.run_model import used_functions


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > x.dim():
            return x
        for _ in range(2):
            x = functional.relu(self.inner(x))
        x[0] = 1
        if x.sum() > 1e9:
            return x
        return torch.cat([x, x], dim=1).view(-1)


def uses_of(model: nn.Module, *args: object) -> dict[str, FunctionUse]:
    return {use.function: use for use in used_functions(model, Inputs(args=args, origin="test"), seed=0)}


def test_functions_are_counted_as_the_code_writes_them_with_arguments_and_where() -> None:
    found = uses_of(Net(), torch.ones(2, 4))

    assert found["torch.nn.functional.linear"] == FunctionUse(
        function="torch.nn.functional.linear",
        arguments="float32[2, 4], float32[4, 4], float32[4]",
        output="float32[2, 4]",
        calls=2,
        modules=("inner",),
    )
    assert found["torch.nn.functional.relu"].modules == ("",)
    assert found["torch.cat"].arguments == "[float32[2, 4], float32[2, 4]], dim=1"
    assert found["torch.cat"].output == "float32[2, 8]"


def test_writes_and_values_that_python_reads_count_and_questions_for_sizes_do_not() -> None:
    found = uses_of(Net(), torch.ones(2, 4))

    assert {"torch.Tensor.__setitem__", "torch.Tensor.__bool__"} <= set(found)
    assert not {"torch.Tensor.shape.__get__", "torch.Tensor.dim"} & set(found)


def test_a_function_that_calls_others_is_one_call() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x, x)[0]

    found = uses_of(Attention(), torch.ones(3, 1, 4))

    assert found["torch.nn.functional.multi_head_attention_forward"].modules == ("attention",)
    assert "torch.nn.functional.linear" not in found


def test_no_hook_is_left_on_the_model() -> None:
    model = Raises()

    with pytest.raises(ModelError):
        uses_of(model, torch.ones(1))
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_no_address_stands_in_a_name_or_argument() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sum(torch.rand(2, generator=torch.Generator())) + x[..., None]

    listed = [f"{use.function}({use.arguments})" for use in uses_of(Odd(), torch.ones(2)).values()]

    assert "torch.rand(2, generator=<Generator>)" in listed
    assert not any("0x" in one for one in listed)
