import torch
from torch import Tensor, nn

from torchstone.capture.op_log import ModulePlace, ModulePlaces, call_site


class Asks(nn.Module):
    """Remembers where it was when it ran."""

    def __init__(self, places: ModulePlaces) -> None:
        super().__init__()
        self.places = places
        self.seen: list[ModulePlace] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(self.places.current())
        return x * 2


def test_a_module_is_named_by_its_path_below_the_outermost_one() -> None:
    places = ModulePlaces()
    inner = Asks(places)
    net = nn.Sequential(nn.ModuleDict({"deep": inner})["deep"], nn.ReLU())

    with places.followed():
        net(torch.ones(2))
        inner(torch.ones(2))

    assert inner.seen == [ModulePlace("Sequential", "0"), ModulePlace("Asks", "")]


def test_outside_any_module_there_is_no_place() -> None:
    assert ModulePlaces().current() == ModulePlace("", "")


def test_a_module_that_is_no_part_of_the_outer_one_goes_by_its_class() -> None:
    places = ModulePlaces()
    hidden = [Asks(places)]

    class Outer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = hidden[0](x)
            return result

    with places.followed():
        Outer()(torch.ones(2))

    assert hidden[0].seen == [ModulePlace("Outer", "Asks")]


def test_module_calls_are_as_before_when_it_closes() -> None:
    before = nn.Module.__call__

    with ModulePlaces().followed():
        assert nn.Module.__call__ is not before

    assert nn.Module.__call__ is before


def test_the_backward_pass_is_credited_to_the_module_whose_op_it_undoes() -> None:
    places = ModulePlaces()
    seen: list[ModulePlace] = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(_ctx: object, *grads: Tensor) -> Tensor:
            seen.append(places.current())
            return grads[0]

    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = Watched.apply(x)
            return result

    net = nn.Sequential(nn.Linear(2, 2), Inner())
    with places.followed():
        net(torch.ones(1, 2)).sum().backward()

    assert seen == [ModulePlace("Sequential", "1")]


def test_the_call_site_is_the_users_own_line() -> None:
    line = call_site.__code__.co_firstlineno  # any number: the site must be in this file
    assert line > 0

    assert call_site().rpartition(":")[0].endswith("test_recording_places.py")
