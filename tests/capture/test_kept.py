import gc
import logging
import random
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn

from tests.capture.nets import Feed, Stack, cache
from torchstone.capture import capture, restore_state
from torchstone.capture.module_tree import ModuleTree
from torchstone.capture.restore_state import inputs_in, modules_kept, process_kept, uncollected
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

    with pytest.raises(StopError), modules_kept(ModuleTree(model), real=True):
        spoil()

    assert model.kept == 1
    assert not hasattr(model, "added")
    assert list(model._forward_hooks) == [hook.id]
    assert model.weight.grad is None


def test_a_first_buffer_that_a_module_registers_while_it_runs_is_what_it_leaves() -> None:
    class Counting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.register_buffer("state", x + 1)
            return x * 2

    model = nn.Sequential(Counting(), nn.Linear(4, 4))
    trace = capture(model, torch.rand(2, 4))

    assert trace.recorded_tensors.left == {"0.state": trace.ops.outputs[0][0]}
    assert not model[0]._buffers


def test_an_entry_that_the_forward_pass_renames_has_its_name_again() -> None:
    model = nn.Linear(2, 2)
    model.states = {"old": torch.ones(2)}  # type: ignore[assignment]

    with modules_kept(ModuleTree(model), real=False):
        model.states["new"] = model.states.pop("old")  # type: ignore[operator, index, union-attr]

    assert list(model.states) == ["old"]  # type: ignore[arg-type]


def test_buffers_that_a_real_run_updates_come_back() -> None:
    norm = nn.BatchNorm1d(2).train()

    with modules_kept(ModuleTree(norm), real=True):
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


class _Waits(nn.Module):
    """Says when it runs, and ends when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.events = (Event(), Event())
        self.threads: SimpleQueue[int] = SimpleQueue()  # of torch, while it is captured and after that

    def forward(self, x: Tensor) -> Tensor:
        runs, may_end = self.events
        self.threads.put(torch.get_num_threads())
        runs.set()
        assert may_end.wait(60)
        return self.layer(x)


def _capture_and_look(model: _Waits) -> None:
    capture(model, torch.rand(1, 2))
    model.threads.put(torch.get_num_threads())


def _process() -> dict[str, object]:
    compiled = torch.compile(torch.sin, backend=lambda _graph, _inputs: lambda *_: (torch.zeros(1),))
    return {
        "threads": torch.get_num_threads(),
        "module.to": nn.Module.to,
        "logger": logging.getLogger("torch._subclasses.fake_tensor").disabled,
        "tensor.data": "data" in vars(Tensor),
        "compiles": compiled(torch.ones(1)).item() == 0,
    }


def test_captures_that_overlap_on_two_threads_leave_the_process_as_it_was() -> None:
    before = _process()
    first, second = _Waits(), _Waits()
    after: list[int] = []
    threads = [Thread(target=_capture_and_look, args=(model,)) for model in (first, second)]

    for model, thread in zip((first, second), threads, strict=True):
        thread.start()
        assert model.events[0].wait(60)
    for model, thread in zip((first, second), threads, strict=True):
        model.events[1].set()
        thread.join(60)

    later = Thread(target=lambda: after.append(torch.get_num_threads()))
    later.start()
    later.join(60)

    assert before["compiles"]
    assert _process() == before
    assert [[model.threads.get_nowait() for _ in range(2)] for model in (first, second)] == [[1, before["threads"]]] * 2
    assert after == [before["threads"]]


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


class _Reshapes(nn.Module):
    """Gives its buffers other sizes in all the ways that torch has."""

    table: Tensor
    other: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(8.0))
        self.register_buffer("other", torch.arange(5.0))
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        self.table.data = torch.zeros(16)
        self.other.resize_(0)
        return x * self.weight


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_buffers_that_were_given_another_size_and_gradients_that_were_added_to_are_put_back(
    mode: str, *, backward: bool
) -> None:
    model = _Reshapes()
    model.weight.grad = gradient = torch.full((8,), 5.0)

    trace = capture(model, torch.ones(8), mode, backward=backward)

    assert trace.failure is None
    assert model.table.tolist() == list(range(8))
    assert model.other.tolist() == list(range(5))
    assert model.weight.grad is gradient
    assert gradient.tolist() == [5.0] * 8


class _Writes(nn.Module):
    """Writes in place to all that a module can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.calls = nn.Buffer(torch.zeros((), dtype=torch.int64))
        self.places = nn.Buffer(torch.zeros(5, dtype=torch.int64))
        self.means = nn.Buffer(torch.zeros(4))
        self.codes = nn.Parameter(torch.zeros(3, dtype=torch.int32), requires_grad=False)
        self.attribute = torch.zeros(3)
        self.states = [torch.zeros(2)]
        self.named = {"last": torch.zeros(2)}

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        self.places[1:].fill_(7)
        self.places.data.add_(2)
        self.means.mul_(2).add_(1)
        self.codes.add_(1)
        self.attribute.add_(1)
        self.states[0].fill_(3)
        self.named["last"][0] += 1
        with torch.no_grad():
            self.layer.weight.mul_(2)
            self.layer.bias.data.add_(1)
        result: Tensor = self.norm(self.layer(x))
        return result

    def held(self) -> dict[str, Tensor]:
        own = {"attribute": self.attribute, "state": self.states[0], "last": self.named["last"]}
        return {name: one.detach().clone() for name, one in (self.state_dict(keep_vars=True) | own).items()}


@pytest.mark.parametrize("mode", ["fake", "meta", "cpu"])
def test_what_a_run_writes_in_place_comes_back_in_every_mode(mode: str) -> None:
    model = _Writes().train()
    before = model.held()

    trace = capture(model, torch.rand(3, 4), mode)

    assert trace.failure is None
    after = model.held()
    assert [name for name, value in before.items() if not torch.equal(value, after[name])] == []


def test_a_run_that_stops_without_values_leaves_nothing_to_the_next_one() -> None:
    class Initializes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.ready = nn.Buffer(torch.tensor(0))

        def forward(self, x: Tensor) -> Tensor:
            if not self.ready.item():
                with torch.no_grad():
                    self.layer.bias.copy_(x.mean(0))
                self.ready.fill_(1)
            y: Tensor = self.layer(x)
            return y if y.sum() > 0 else -y

    trace = capture(Initializes(), torch.rand(3, 4))

    assert trace.provenance.mode == "cpu"
    assert "aten.copy_.default" in [call.op for call in trace.ops]
