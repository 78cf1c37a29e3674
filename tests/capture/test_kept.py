import gc
import random
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn

from tests.capture.nets import Feed, Stack, cache
from torchstone.capture import capture, restore_state
from torchstone.capture.restore_state import inputs_in, modules_kept, one_thread, process_kept, uncollected
from torchstone.capture.tensor_modes import FakeWorld, RealWorld


class StopError(Exception):
    """Ends a block early."""


def test_attributes_hooks_and_gradients_come_back_even_after_an_error() -> None:
    model = nn.Linear(2, 2)
    model.kept = 1  # type: ignore[assignment]
    hook = model.register_forward_hook(lambda *_: None)

    def spoil() -> None:
        model.kept = 2  # type: ignore[assignment]
        model.added = 3  # type: ignore[assignment]
        model.register_forward_hook(lambda *_: None)
        model.weight.grad = torch.ones(2, 2)
        raise StopError

    with pytest.raises(StopError), modules_kept([model], real=True):
        spoil()

    assert model.kept == 1
    assert not hasattr(model, "added")
    assert list(model._forward_hooks) == [hook.id]
    assert model.weight.grad is None


def test_buffers_that_a_real_run_updates_come_back() -> None:
    norm = nn.BatchNorm1d(2).train()

    with modules_kept([norm], real=True):
        norm(torch.randn(8, 2))
        assert int(norm.num_batches_tracked or 0) == 1

    assert int(norm.num_batches_tracked or 0) == 0
    assert norm.running_mean is not None
    assert torch.equal(norm.running_mean, torch.zeros(2))


def test_garbage_is_collected_again_afterwards() -> None:
    with uncollected():
        assert not gc.isenabled()

    assert gc.isenabled()


def _cycle() -> ref[list[object]]:
    class Own(list[object]):
        """A list that can be referred to weakly."""

    held = Own()
    held.append(held)
    return ref(held)


def test_garbage_that_was_there_before_is_found_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore_state, "_MOST_UNSEEN", 500)
    with uncollected():
        lost = _cycle()
    kept = []
    for _ in range(3):
        with uncollected():
            kept += [[number] for number in range(400)]

    assert lost() is None
    assert len(kept) == 1200


def test_objects_that_somebody_else_froze_stay_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with uncollected():
            assert not gc.isenabled()

        assert gc.get_freeze_count() >= frozen - 100  # objects may die
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    ("model", "given"),
    [(Stack(Feed(), Feed()), torch.rand(2, 8)), (nn.Conv2d(3, 4, 3), torch.rand(2, 3, 9, 9))],
)
def test_a_capture_leaves_no_garbage_of_its_own(model: nn.Module, given: Tensor) -> None:
    capture(model, given)
    gc.collect()

    capture(model, given)

    assert not gc.collect()


def test_captures_side_by_side_give_the_threads_of_torch_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        assert torch.get_num_threads() == 1
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1
        second.__exit__(None, None, None)

        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_random_states_and_grad_mode_come_back() -> None:
    before = (random.getstate(), torch.random.get_rng_state().tolist(), torch.is_grad_enabled())

    with process_kept(grad=False):
        random.random()  # noqa: S311 - a draw is a draw
        torch.rand(3)
        assert not torch.is_grad_enabled()

    assert (random.getstate(), torch.random.get_rng_state().tolist(), torch.is_grad_enabled()) == before


@pytest.mark.parametrize("world", [RealWorld(), FakeWorld()])
def test_inputs_are_the_models_own_with_sharing_kept(world: Any) -> None:
    shared = torch.zeros(2, 4, 8)
    past = cache(2, keys=shared)

    (first, second), kwargs = inputs_in(world, (shared, [shared]), {"past": past})

    assert isinstance(first, Tensor)
    assert first is second[0] is kwargs["past"].entries[0].keys
    assert first is not shared
    assert kwargs["past"] is not past
    assert past.entries[0].keys is shared
