from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.capture.nets import Feed, Numbered, Stack
from torchstone.capture.fingerprint import Fingerprints, NoFingerprintError
from torchstone.capture.module_tree import ModuleTree
from torchstone.capture.tables import TensorColumns
from torchstone.capture.tensor_modes import MetaWorld


def keys(*layers: nn.Module) -> list[object]:
    tree = ModuleTree(Stack(*layers).to("meta"))
    fingerprints = Fingerprints(tree, TensorColumns(stand_in=True), MetaWorld())
    return [fingerprints.of(layer).key for layer in layers]


def test_equal_modules_have_equal_keys() -> None:
    one, two = keys(Feed(), Feed())

    assert one == two


@pytest.mark.parametrize(
    "other",
    [
        lambda: Feed(slope=0.5),
        lambda: Feed().train(mode=False),
        lambda: Feed().to(torch.float16),
        lambda: Feed().requires_grad_(requires_grad=False),
        lambda: nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8)),
        lambda: with_child(Feed()),
        lambda: with_attribute(Feed(), [1, 2]),
        lambda: with_attribute(Feed(), object()),
    ],
)
def test_whatever_could_change_the_trace_changes_the_key(other: Callable[[], nn.Module]) -> None:
    one, two = keys(Feed().train(), other())

    assert one != two


def with_child(module: nn.Module) -> nn.Module:
    module.extra = nn.ReLU()
    return module


def with_attribute(module: nn.Module, value: object) -> nn.Module:
    module.extra = value  # type: ignore[assignment]
    return module


def test_the_number_of_a_layer_does_not_count() -> None:
    one, two = keys(Numbered(0), Numbered(1))

    assert one == two


def test_tied_parameters_are_told_from_ones_that_only_look_alike() -> None:
    with torch.device("meta"):
        tied, apart = (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(2))
    tied[1].weight = tied[0].weight

    one, two = keys(apart, tied)

    assert one != two


def test_small_buffers_count_by_value() -> None:
    def with_table(value: int) -> nn.Module:
        module = nn.Module()
        module.register_buffer("table", torch.tensor([value]))
        return module

    layers = [with_table(1), with_table(1), with_table(2)]
    fingerprints = Fingerprints(ModuleTree(Stack(*layers)), TensorColumns(stand_in=True), MetaWorld())
    one, same, other = (fingerprints.of(layer).key for layer in layers)

    assert one == same != other


def test_a_module_with_a_hook_is_not_compared() -> None:
    feed = Feed()
    feed.up.register_forward_hook(lambda *_: None)

    with pytest.raises(NoFingerprintError):
        keys(feed)
