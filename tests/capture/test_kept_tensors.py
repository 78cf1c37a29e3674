"""Memory that a capture keeps to put it back is the model's while the model has it, as torch's profiler says."""

import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from torchstone.capture import capture
from torchstone.record.trace import EagerMemory

SIZE, BYTES = 50_000, 200_000
_MARK_BYTES = 123_457


class _Holds(nn.Module):
    """Something of each kind that a module may hold."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(SIZE))
        self.register_buffer("steps", torch.arange(7))
        self.weight = nn.Parameter(torch.ones(SIZE))
        self.plain = torch.ones(SIZE)
        self.listed: list[Tensor] = []
        self.named: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        return STEPS[self.step](self, x)

    step = ""


class _HoldsTwice(_Holds):
    """A buffer that is also in a list and a part of which is another buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.listed.append(self.table)
        self.register_buffer("part", self.table[: SIZE // 2])


def replace_twice(model: _Holds, x: Tensor) -> Tensor:
    model.table = x * 2
    model.table = model.table * 2
    return x + model.table


def use_after_replacing(model: _Holds, x: Tensor) -> Tensor:
    before = model.table
    model.table = x * 2
    y = before + model.table
    del before
    return (y * 2).exp()


def keep_a_view(model: _Holds, x: Tensor) -> Tensor:
    corner = model.table[:3]
    model.table = x * 2
    return (x * 2).exp() + corner.sum()


def replace_a_parameter(model: _Holds, x: Tensor) -> Tensor:
    model.weight = nn.Parameter(model.weight * x)
    return (x * model.weight).exp()


def delete(model: _Holds, x: Tensor) -> Tensor:
    y = model.plain + model.table
    del model.plain, model.table
    return ((x * 2) * 3).exp() + y


def replace_attributes(model: _Holds, x: Tensor) -> Tensor:
    for _ in range(3):
        model.plain = model.plain + x
    return model.plain.exp()


def replace_what_is_in_containers(model: _Holds, x: Tensor) -> Tensor:
    for _ in range(3):
        model.listed = [x * 2, *model.listed[:-1]]
        model.named["last"] = model.listed[0] * 2
    return x + model.named["last"]


def grow_and_drop(model: _Holds, x: Tensor) -> Tensor:
    model.listed += [x * 2, x * 3]
    model.listed = []
    return ((x * 2) * 3).exp()


def replace_all_but_one(model: _Holds, x: Tensor) -> Tensor:
    model.table = x * 2
    if hasattr(model, "part"):
        model.part = x[:3]
    y = x + model.table  # the list may still hold what the buffer was
    model.listed = []
    return ((y * 2) * 3).exp()


STEPS: dict[str, Callable[[_Holds, Tensor], Tensor]] = {
    step.__name__: step
    for step in (
        replace_twice, use_after_replacing, keep_a_view, replace_a_parameter, delete, replace_attributes,
        replace_what_is_in_containers, grow_and_drop, replace_all_but_one,
    )
}  # fmt: skip

# Gradients that meet in one tensor are added up in place, but not where a mode looks on.
TRAINED = sorted(STEPS.keys() - {"replace_attributes", "replace_all_but_one"})


def _made(kind: type[_Holds], step: str) -> tuple[_Holds, Tensor]:
    model = kind()
    model.step = step
    return model, torch.ones(SIZE, requires_grad=True)


def _ids(model: _Holds) -> list[int]:
    return [*map(id, (model.plain, *model.parameters(), *model.buffers(), *model.listed, *model.named.values()))]


def _measured(kind: type[_Holds], step: str, *, backward: bool) -> EagerMemory:
    """What the CPU allocator had given out when the model was called, and the most until it was done."""
    gc.collect()
    with torch.set_grad_enabled(backward), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        with torch.enable_grad():
            model, x = _made(kind, step)
        torch.empty(_MARK_BYTES, dtype=torch.uint8)
        output = model(x)
        if backward:
            torch.autograd.backward([output], [torch.ones_like(output)])
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = before = most = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        held += event.nbytes()
        if event.nbytes() == -_MARK_BYTES:
            before = most = held
        most = max(most, held)
    return EagerMemory(before_bytes=before, peak_bytes=most, reserved_bytes=None)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch hides it, too
@pytest.mark.parametrize("kind", [_Holds, _HoldsTwice])
@pytest.mark.parametrize(
    ("step", "backward"), [*((step, False) for step in STEPS), *((step, True) for step in TRAINED)]
)
@pytest.mark.parametrize("mode", ["cpu", "fake"])
def test_what_a_model_lets_go_of_is_not_live_any_more(
    kind: type[_Holds], step: str, mode: str, *, backward: bool
) -> None:
    model, x = _made(kind, step)
    held = _ids(model)  # whoever else holds the tensors keeps them alive
    values = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    trace = capture(model, x, mode, backward=backward)
    measured = _measured(kind, step, backward=backward)

    assert trace.failure is None
    assert trace.eager_memory is not None
    assert trace.eager_memory.before_bytes == pytest.approx(measured.before_bytes, abs=100)
    assert trace.eager_memory.peak_bytes == pytest.approx(measured.peak_bytes, abs=100)
    assert _ids(model) == held
    assert all(torch.equal(values[name], tensor) for name, tensor in model.state_dict().items())
