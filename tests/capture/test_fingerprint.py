from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.capture.nets import Feed, Numbered, Stack
from torchstone.capture.fingerprint import Fingerprints, NoFingerprintError
from torchstone.capture.module_tree import ModuleTree
from torchstone.capture.tables import TensorColumns
from torchstone.capture.tensor_modes import FakeWorld, MetaWorld


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


class Configured(nn.Module):
    """A block with attributes of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.feed = Feed()
        self.sizes = (3, 3)
        self.settings = type("Settings", (), {})()
        self.first = True


def kept(block: Configured) -> Fingerprints:
    tree, tensors = ModuleTree(Stack(block).to("meta")), TensorColumns(stand_in=True)
    tensors.number_held(tree.held_tensors(), lambda _: False)
    fingerprints = Fingerprints(tree, tensors, FakeWorld())
    fingerprints.keep(fingerprints.of(block))
    return fingerprints


def test_a_module_that_is_as_it_was_kept_is_not_read_again() -> None:
    block = Configured()
    fingerprints = kept(block)

    again, part = fingerprints.of(block), fingerprints.of(block.feed)

    assert again.reading is None
    assert part.reading is None
    assert again.tensors == list(block.parameters())
    assert part.tensors == list(block.feed.parameters())


def _rename(block: Configured) -> None:
    del block.first
    block.last = True  # type: ignore[assignment]


@pytest.mark.parametrize(
    "change",
    [
        lambda block: setattr(block, "sizes", (3, 5)),
        lambda block: setattr(block, "first", False),
        lambda block: setattr(block, "settings", object()),
        lambda block: setattr(block.feed, "slope", 0.5),
        lambda block: setattr(block, "feed", Feed(slope=0.5)),
        lambda block: block.feed.register_buffer("table", torch.ones(2, device="meta")),
        lambda block: setattr(block.feed, "up", nn.Linear(8, 24, device="meta")),
        lambda block: block.feed.train(mode=False),
        lambda block: setattr(block.feed, "extra", nn.ReLU()),
        _rename,
    ],
)
def test_a_module_that_changed_after_it_was_kept_has_another_key(change: Callable[[Configured], None]) -> None:
    block = Configured()
    fingerprints = kept(block)
    before = fingerprints.of(block).key

    change(block)

    assert fingerprints.of(block).key != before


def test_lists_that_change_inside_and_tensors_are_read_again() -> None:
    with_list, with_tensor = Configured(), Configured()
    with_list.steps, with_tensor.state = [1, 2], torch.ones(2, device="meta")  # type: ignore[assignment]
    fingerprints = kept(with_list)
    before = fingerprints.of(with_list).key

    with_list.steps[0] = 2  # type: ignore[operator]

    assert fingerprints.of(with_list).key != before
    assert kept(with_tensor).of(with_tensor).reading is not None  # to keep it would keep the tensor


def test_a_hook_that_was_added_after_a_module_was_kept_is_seen() -> None:
    block = Configured()
    fingerprints = kept(block)

    block.feed.register_forward_hook(lambda *_: None)

    with pytest.raises(NoFingerprintError):
        fingerprints.of(block)
