import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.capture.describe import Describer
from torchstone.capture.tables import CallColumns, Descriptions, argument_names, describe_arguments
from torchstone.record.module import ModuleSignature


def test_positional_arguments_get_the_names_of_forward() -> None:
    class Net(nn.Module):
        def forward(self, left: int, *rest: int, key: int = 0) -> int:
            return left + sum(rest) + key

    arguments = describe_arguments(Net(), (1, 2), {"key": 3}, Describer())

    assert [(argument.name, argument.value, argument.position) for argument in arguments] == [
        ("left", 1, 0),
        ("1", 2, 1),
        ("key", 3, None),
    ]


def test_a_forward_without_a_signature_gives_numbers() -> None:
    class Net(nn.Module):
        forward = dict

    assert argument_names(Net(), 2) == ["0", "1"]


def test_equal_signatures_are_kept_once() -> None:
    columns, known = CallColumns(), Descriptions(stand_in=False)

    signatures = [known.one_of(ModuleSignature(arguments=(), output=output)) for output in (1, 2, 1)]

    assert [columns.number_signature(one) for one in signatures] == [0, 1, 0]


class _Scale(nn.Module):
    def forward(self, x: Tensor, factor: float) -> Tensor:
        return x * factor


class _Scales(nn.Module):
    def __init__(self, *factors: float) -> None:
        super().__init__()
        self.scale, self.factors = _Scale(), factors

    def forward(self, x: Tensor) -> Tensor:
        for factor in self.factors:
            x = self.scale(x, factor)
        return x


def test_equal_values_of_other_types_are_distinguished_within_a_capture_and_between_captures() -> None:
    x = torch.rand(3)
    factors: list[tuple[float, ...]] = [(True, 1, 1.0, -0.0, 0.0, 0, False), (0.0, False, 1.0, True, 1)]

    for given in factors:
        calls = capture(_Scales(*given), x).recorded_calls
        seen = [calls.signatures[number].arguments[1].value for number in calls.signature_of[1:]]

        assert list(map(repr, seen)) == list(map(repr, given))
