import threading

import pytest
import torch
from torch import nn

from torchstone.capture.calls import CallColumns, argument_names, describe_arguments, intercepted
from torchstone.capture.describe import Describer


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


def test_only_known_modules_on_this_thread_are_intercepted() -> None:
    known, other = nn.Linear(1, 1), nn.Linear(1, 1)
    seen: list[nn.Module] = []
    results = []
    x = torch.zeros(1, 1)

    with intercepted({id(known): 0}, lambda module, *_: seen.append(module)) as really_call:
        known(x)
        other(x)
        thread = threading.Thread(target=lambda: results.append(known(x)))
        thread.start()
        thread.join()
        results.append(really_call(known, (x,), {}))

    assert seen == [known]
    assert len(results) == 2


def test_calls_go_their_usual_way_again_after_an_error() -> None:
    before = nn.Module.__call__

    with pytest.raises(ZeroDivisionError), intercepted({}, lambda *_: None):
        _ = 1 // 0

    assert nn.Module.__call__ is before


def test_equal_signatures_are_kept_once() -> None:
    columns = CallColumns()

    numbers = [columns.number_signature((), output) for output in (1, 2, 1)]

    assert numbers == [0, 1, 0]
