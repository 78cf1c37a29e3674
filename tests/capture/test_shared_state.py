"""Equal layers whose code looks at something that they share, or leaves something behind."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from itertools import count
from typing import Any
from unittest.mock import MagicMock
from weakref import proxy, ref

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.capture import capture
from torchstone.record.trace import Trace

LAYERS, WIDTH = 6, 8
VARIABLE: ContextVar[int] = ContextVar("VARIABLE", default=0)
FLAG = 0
FOUND: list[Tensor] = []
GROWING: list[list[Any]] = []


class Notes:
    """An object that layers share."""

    def __init__(self) -> None:
        self.count = 0
        self.rows = [0]
        self.by_name = {"count": 0}
        self.found: list[Tensor] = []
        self.mask = torch.ones(1)


class NotesWithIterator(Notes):
    def __init__(self) -> None:
        super().__init__()
        self.turns = count()


class NotesOfModel(Notes):
    """What knows the model by a weak reference."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Identity()
        self.own.count = 0  # type: ignore[assignment]
        self.model = ref(self.own)


class NotesWithTensors(Notes):
    def __init__(self) -> None:
        super().__init__()
        self.pair: list[Any] = [torch.ones(1), 0]
        GROWING[:] = [self.pair]


class Slotted:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


GLOBAL_NOTES = Notes()


class Layer(nn.Module):
    """One of equal layers; `turn` says where it finds a number that changes from call to call."""

    turn_of_class = 0

    def __init__(self, shared: Any) -> None:
        super().__init__()
        self.up, self.down, self.shared = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), shared

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        out: Tensor = self.down(torch.relu(x) if self.turn() % 2 else torch.sigmoid(x))
        return out

    def turn(self) -> int:
        raise NotImplementedError


class CountsInObject(Layer):
    def turn(self) -> int:
        self.shared.count += 1
        return int(self.shared.count)


class CountsInListOfObject(Layer):
    def turn(self) -> int:
        self.shared.rows[0] += 1
        return int(self.shared.rows[0])


class CountsInDictionaryOfObject(Layer):
    def turn(self) -> int:
        self.shared.by_name["count"] += 1
        return int(self.shared.by_name["count"])


class CountsInSlot(Layer):
    def turn(self) -> int:
        self.shared.count += 1
        return int(self.shared.count)


class CountsBesideTensor(Layer):
    def turn(self) -> int:
        self.shared[1] += 1
        return int(self.shared[1])


class CountsBesideTensorOfObject(Layer):
    def turn(self) -> int:
        self.shared.pair[1] += 1
        return int(self.shared.pair[1])


class CountsTensorsOfObject(Layer):
    def turn(self) -> int:
        return len(self.shared.pair)


class AsksFunction(Layer):
    def turn(self) -> int:
        return int(self.shared())


class AsksIterator(Layer):
    def turn(self) -> int:
        return int(next(self.shared))


class AsksIteratorOfObject(Layer):
    def turn(self) -> int:
        return int(next(self.shared.turns))


class CountsInModel(Layer):
    def turn(self) -> int:
        model = self.shared.model()
        model.count += 1
        return int(model.count)


class CountsInClass(Layer):
    def turn(self) -> int:
        CountsInClass.turn_of_class += 1
        return CountsInClass.turn_of_class


class CountsInFile(Layer):
    def turn(self) -> int:
        global FLAG  # noqa: PLW0603 - what the test is about
        FLAG += 1
        return FLAG


class CountsInObjectOfFile(Layer):
    def turn(self) -> int:
        GLOBAL_NOTES.count += 1
        return GLOBAL_NOTES.count


class ReadsVariable(Layer):
    def turn(self) -> int:
        return VARIABLE.get()


class ReadsFile(Layer):
    def turn(self) -> int:
        return flag()


def flag() -> int:
    return FLAG


class Layers(nn.Module):
    """Equal layers; before each one the model sets what layers may read."""

    def __init__(self, kind: type[Layer], shared: Any, set_turn: Callable[[int], object]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([kind(shared) for _ in range(LAYERS)])
        self.set_turn = set_turn

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            self.set_turn(number)
            x = layer(x)
        return x


def set_file(number: int) -> None:
    global FLAG  # noqa: PLW0603 - what the test is about
    FLAG = number


def counter() -> Callable[[], int]:
    calls = 0

    def counted() -> int:
        nonlocal calls
        calls += 1
        return calls

    return counted


def ops_of(trace: Trace) -> list[tuple[str, object]]:
    signatures = (trace.ops.signatures[number] for number in trace.ops.signature_of)
    return [(one.op, [spec.shape for spec in one.output_specs]) for one in signatures]


NOTHING: Callable[[int], object] = lambda _number: None  # noqa: E731 - three words


@pytest.mark.parametrize(
    ("kind", "shared", "set_turn"),
    [
        (CountsInObject, Notes, NOTHING),
        (CountsInListOfObject, Notes, NOTHING),
        (CountsInDictionaryOfObject, Notes, NOTHING),
        (CountsInSlot, Slotted, NOTHING),
        (CountsBesideTensor, lambda: [torch.ones(1), 0], NOTHING),
        (CountsBesideTensorOfObject, NotesWithTensors, NOTHING),
        (CountsTensorsOfObject, NotesWithTensors, lambda _number: GROWING[0].append(torch.ones(1))),
        (AsksFunction, counter, NOTHING),
        (AsksIterator, count, NOTHING),
        (AsksIteratorOfObject, NotesWithIterator, NOTHING),
        (CountsInModel, NotesOfModel, NOTHING),
        (CountsInClass, Notes, NOTHING),
        (CountsInFile, Notes, NOTHING),
        (CountsInObjectOfFile, Notes, NOTHING),
        (ReadsVariable, Notes, VARIABLE.set),
        (ReadsFile, Notes, set_file),
    ],
)
def test_layers_that_take_turns_are_captured_as_they_run(
    kind: type[Layer], shared: Callable[[], object], set_turn: Callable[[int], object]
) -> None:
    found = []
    for reuse in (True, False):
        CountsInClass.turn_of_class = GLOBAL_NOTES.count = 0
        set_file(0)
        trace = capture(Layers(kind, shared(), set_turn).eval(), torch.rand(3, WIDTH), "fake", reuse=reuse)
        assert trace.failure is None
        found.append(ops_of(trace))

    assert found[0] == found[1]
    assert sum(op == "aten.relu.default" for op, _ in found[0]) == LAYERS // 2


class Collecting(nn.Module):
    """A layer that leaves a tensor where the model finds it later."""

    def __init__(self, leave: Callable[[Any, Tensor], object], shared: Any) -> None:
        super().__init__()
        self.up, self.leave, self.shared = nn.Linear(WIDTH, WIDTH), leave, shared

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.up(x))
        self.leave(self.shared, x.mean())
        return x


class Losses(nn.Module):
    def __init__(self, leave: Callable[[Any, Tensor], object], collect: Callable[[Any], list[Tensor]]) -> None:
        super().__init__()
        self.shared = Notes()
        self.layers = nn.ModuleList([Collecting(leave, self.shared) for _ in range(LAYERS)])
        self.collect = collect

    def forward(self, x: Tensor) -> Tensor:
        FOUND.clear()
        for layer in self.layers:
            x = layer(x)
        return x.sum() + torch.stack(self.collect(self.shared)).sum()


@pytest.mark.parametrize(
    ("leave", "collect"),
    [
        (lambda shared, loss: shared.found.append(loss), lambda shared: shared.found),
        (lambda _shared, loss: FOUND.append(loss), lambda _shared: FOUND),
        (
            lambda shared, loss: shared.by_name.update({str(len(shared.by_name)): loss}),
            lambda shared: [one for one in shared.by_name.values() if isinstance(one, Tensor)],
        ),
    ],
    ids=["list of an object", "list of a file", "dictionary of an object"],
)
def test_losses_that_layers_leave_elsewhere_are_all_found(
    leave: Callable[[Any, Tensor], object], collect: Callable[[Any], list[Tensor]]
) -> None:
    trace = capture(Losses(leave, collect).eval(), torch.rand(3, WIDTH), "fake")

    (stack,) = [
        trace.ops[number] for number in range(len(trace.ops)) if trace.ops[number].signature.op == "aten.stack.default"
    ]
    assert len(stack.inputs) == LAYERS
    assert trace.size.op == len(capture(Losses(leave, collect).eval(), torch.rand(3, WIDTH), "cpu").ops)


class NotesTurn(nn.Module):
    """A layer that says in a dictionary which branch it took."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, notes: dict[str, int]) -> Tensor:
        notes["turn"] = notes.get("turn", 0) + 1
        return torch.relu(self.up(x))


class ReadsNotes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([NotesTurn() for _ in range(LAYERS)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            notes: dict[str, int] = {}
            x = layer(x, notes)
            x = torch.sigmoid(x) if notes.get("turn") else torch.tanh(x)
        return x


def test_what_a_layer_writes_into_a_dictionary_that_it_is_given_is_there_for_each() -> None:
    trace = capture(ReadsNotes().eval(), torch.rand(3, WIDTH), "fake")

    assert sum(op == "aten.sigmoid.default" for op, _ in ops_of(trace)) == LAYERS


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x)[:, None]
        return nn.functional.scaled_dot_product_attention(query, query, query)[:, 0]


class Doubles(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is nn.functional.linear else result


class DoublesEachProduct(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ops.aten.addmm.default else result


class InModes(nn.Module):
    def __init__(self, open_mode: Callable[[], AbstractContextManager[object]]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Attends() for _ in range(LAYERS)])
        self.open_mode = open_mode

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            with self.open_mode() if number == 2 else nullcontext():
                x = layer(x)
        return x


@pytest.mark.parametrize("open_mode", [lambda: sdpa_kernel(SDPBackend.MATH), Doubles, DoublesEachProduct])
def test_a_layer_under_another_mode_of_torch_is_captured_as_it_runs(
    open_mode: Callable[[], AbstractContextManager[object]],
) -> None:
    model, x = InModes(open_mode).eval(), torch.rand(3, 5, WIDTH)

    assert ops_of(capture(model, x, "fake")) == ops_of(capture(model, x, "fake", reuse=False))


def test_layers_that_share_what_does_not_change_stand_for_one_another() -> None:
    class Reads(Layer):
        def turn(self) -> int:
            return int(self.shared.count)

    trace = capture(Layers(Reads, Notes(), NOTHING).eval(), torch.rand(3, WIDTH), "fake")

    assert trace.provenance.reused_ops > 0


def test_the_note_says_that_shared_state_keeps_layers_from_being_reused() -> None:
    trace = capture(Layers(CountsInObject, Notes(), NOTHING).eval(), torch.rand(3, WIDTH), "fake")

    (note,) = trace.notes
    reason = "Python state that modules share, which changed or cannot be read"
    assert note == f"reuse is off for 6 modules: {reason} (CountsInObject x 6)"


class RaisesForEach:
    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)


class RaisesForItsClass:
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise RuntimeError


class RaisesForItsAttributes:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError


class RaisesForItsLength(list[int]):
    def __len__(self) -> int:
        raise RuntimeError


class RaisesForItsValues(dict[str, int]):
    def values(self) -> Any:
        raise RuntimeError


def inside_itself() -> list[object]:
    found: list[object] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "make",
    [
        RaisesForEach,
        RaisesForItsClass,
        RaisesForItsAttributes,
        lambda: RaisesForItsLength([1]),
        lambda: RaisesForItsValues(a=1),
        lambda: proxy(Notes()),
        inside_itself,
        MagicMock,
        random.Random,
        lambda: iter([1]),
    ],
)
def test_an_attribute_that_answers_no_question_keeps_a_module_from_being_reused_and_no_more(
    make: Callable[[], object],
) -> None:
    attribute = make()
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(3)]
    for layer in layers:
        vars(layer)["attribute"] = attribute
    model, x = nn.Sequential(*layers).eval(), torch.rand(3, WIDTH)

    trace = capture(model, x, "fake")

    assert trace.failure is None
    assert ops_of(trace) == ops_of(capture(model, x, "fake", reuse=False))
