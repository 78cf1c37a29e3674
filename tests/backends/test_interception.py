import copy
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchstone.backends.interception import KernelOpMode, intercepted, is_composite, op_name

aten = torch.ops.aten


class Names(KernelOpMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def run_op(self, func: Any, args: Any, kwargs: Any) -> Any:
        self.seen.append(op_name(func))
        return func(*args, **kwargs)


def test_composite_ops_are_told() -> None:
    assert is_composite(aten.linear.default)
    assert not is_composite(aten.mm.default)
    assert not is_composite(torch.ops.higher_order.cond)


def test_a_higher_order_op_is_named_as_one() -> None:
    assert op_name(torch.ops.higher_order.cond) == "higher_order.cond"
    assert op_name(aten.add.Tensor) == "aten.add.Tensor"


@pytest.mark.parametrize("inference", [False, True])
def test_a_composite_op_is_seen_as_its_parts(inference: bool) -> None:  # noqa: FBT001
    def run(x: Tensor) -> Tensor:
        return nn.functional.linear(x, torch.ones(3, 2))

    with torch.inference_mode(inference), Names() as names:
        run(torch.zeros(4, 2))

    assert "aten.linear.default" not in names.seen
    assert "aten.mm.default" in names.seen


def test_every_module_on_every_thread_is_intercepted_without_a_list() -> None:
    seen: list[nn.Module] = []
    layer, x = nn.Linear(1, 1), torch.zeros(1, 1)

    with intercepted(None, lambda module, *_: seen.append(module)):
        layer(x)
        thread = threading.Thread(target=layer, args=(x,))
        thread.start()
        thread.join()

    assert seen == [layer, layer]


def test_only_known_modules_on_this_thread_are_intercepted() -> None:
    known, other = nn.Linear(1, 1), nn.Linear(1, 1)
    seen: list[nn.Module] = []
    results = []
    x = torch.zeros(1, 1)

    with intercepted([known], lambda module, *_: seen.append(module)) as really_call:
        known(x)
        other(x)
        thread = threading.Thread(target=lambda: results.append(known(x)))
        thread.start()
        thread.join()
        results.append(really_call(known, (x,), {}))

    assert seen == [known]
    assert len(results) == 2


@pytest.mark.parametrize("every", [False, True])
def test_calls_go_their_usual_way_again_after_an_error(every: bool) -> None:  # noqa: FBT001
    layer = nn.Linear(1, 1)
    before, attributes = nn.Module.__call__, list(vars(layer))

    with pytest.raises(ZeroDivisionError), intercepted(None if every else [layer], lambda *_: None):
        _ = 1 // 0

    assert nn.Module.__call__ is before
    assert list(vars(layer)) == attributes
    assert isinstance(layer(torch.zeros(1, 1)), Tensor)


def test_a_compiled_module_is_intercepted_and_stays_compiled() -> None:
    layer, seen = nn.Linear(1, 1), []
    layer.compile(backend="eager")
    compiled = layer._compiled_call_impl

    def follow(module: nn.Module, args: Any, kwargs: Any) -> object:
        seen.append(module)
        return really_call(module, args, kwargs)

    with torch.compiler.set_stance("force_eager"), intercepted([layer], follow) as really_call:
        assert isinstance(layer(torch.zeros(1, 1)), Tensor)

    assert seen == [layer]
    assert layer._compiled_call_impl is compiled


def test_a_copy_of_a_known_module_is_not_intercepted() -> None:
    layer, seen = nn.Linear(1, 1), []

    with intercepted([layer], lambda module, *_: seen.append(module)):
        copy.copy(layer)(torch.zeros(1, 1))
        copy.deepcopy(layer)(torch.zeros(1, 1))

    assert seen == []
