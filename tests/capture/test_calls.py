from torch import nn

from torchstone.capture.describe import Describer
from torchstone.capture.tables import CallColumns, argument_names, describe_arguments


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
    columns = CallColumns()

    numbers = [columns.number_signature((), output) for output in (1, 2, 1)]

    assert numbers == [0, 1, 0]
