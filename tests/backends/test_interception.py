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
