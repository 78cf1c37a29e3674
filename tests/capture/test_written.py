"""Whatever a model writes while it is captured has its value from before afterwards, in every mode."""

import random
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture

_GLOBAL = torch.arange(4.0)


class _Slots:
    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = torch.ones(3)


class _State:
    """A cache, say."""

    def __init__(self) -> None:
        self.keys, self.length = torch.ones(2, 4), 0
        self.layers: list[dict[str, Tensor]] = [{"keys": torch.ones(2)}]
        self.seen: defaultdict[str, int] = defaultdict(int)


class _Net(nn.Module):
    """Holds tensors wherever code may hold them, and lets `act` loose on itself."""

    bias: Tensor
    count: Tensor

    def __init__(self, act: Callable[[Any, Tensor], object]) -> None:
        super().__init__()
        self.act = act
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.spectral = nn.utils.spectral_norm(nn.Linear(4, 4))
        self.weight = nn.Parameter(torch.arange(16.0).reshape(4, 4))
        self.register_buffer("bias", torch.arange(4.0))
        self.register_buffer("count", torch.tensor(3))
        self.state, self.square = torch.arange(4.0), torch.arange(6.0).reshape(2, 3)
        self.view = self.weight.detach().view(-1)
        self.states = [torch.arange(3.0), torch.arange(2)]
        self.named = {"a": torch.ones(2), "deep": [{"x": torch.ones(3)}]}
        self.queue, self.pair = deque([torch.ones(2)]), (torch.ones(2),)
        self.slots, self.cache = _Slots(), _State()
        self.adam = torch.optim.Adam([self.linear.weight, self.weight], foreach=False)
        for parameter in (self.linear.weight, self.weight):
            parameter.grad = torch.full_like(parameter, 2.0)
        self.adam.step()

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) @ self.weight + self.bias
        result = self.act(self, y)
        return result if isinstance(result, Tensor) else y


def _without_gradient(act: Callable[[Any], object]) -> Callable[[Any, Tensor], None]:
    def run(net: Any, _: Tensor) -> None:
        with torch.no_grad():
            act(net)

    return run


def _raises(net: Any, _: Tensor) -> None:
    net.state.add_(1)
    net.weight.data.add_(1)
    net.bias.add_(1)
    raise ValueError


def _interrupts(net: Any, x: Tensor) -> None:
    with suppress(ValueError):
        _raises(net, x)
    raise KeyboardInterrupt


def _fills_cache(net: Any, x: Tensor) -> None:
    cache = net.cache
    cache.keys, cache.length = torch.cat([cache.keys, x]), 3
    cache.layers[0]["keys"] = x
    cache.layers.append({"keys": x})
    cache.seen["first"] += 1
    cache.new = x


def _adds(net: Any, _: Tensor) -> Tensor:
    net.state += 1
    added: Tensor = net.state
    return added * net.weight


def _converts(net: Any, _: Tensor) -> None:
    net.linear.half()


_ACTS: dict[str, Callable[[Any, Tensor], object]] = {
    "attribute +=": _adds,
    "attribute copy_": lambda net, x: net.state.copy_(x[0].detach()),
    "attribute with a graph": lambda net, x: net.state.add_(x[0]),
    "attribute set_": lambda net, _: net.state.set_(torch.ones(7)),
    "attribute data": lambda net, _: setattr(net.state, "data", torch.ones(2)),
    "attribute unsqueeze_": lambda net, _: net.state.unsqueeze_(0),
    "attribute t_": lambda net, _: net.square.t_(),
    "attribute out": lambda net, _: torch.add(net.state, 1, out=net.state),
    "attribute requires_grad": lambda net, _: net.state.requires_grad_(),
    "list": lambda net, _: net.states[0].add_(1),
    "dictionary": lambda net, _: net.named["a"].mul_(3),
    "deep": lambda net, _: net.named["deep"][0]["x"].zero_(),
    "deque": lambda net, _: net.queue[0].add_(1),
    "tuple": lambda net, _: net.pair[0].add_(1),
    "queue grows": lambda net, x: net.queue.append(x),
    "deep dictionary": lambda net, x: net.named["deep"][0].update(y=x),
    "deep list": lambda net, x: net.named["deep"].append(x),
    "object": _fills_cache,
    "slots": lambda net, _: net.slots.state.add_(1),
    "global": lambda *_: _GLOBAL.add_(1),
    "parameter data": lambda net, _: net.weight.data.add_(1),
    "parameter other data": lambda net, _: setattr(net.weight, "data", torch.zeros(2, 2)),
    "parameter copy_": _without_gradient(lambda net: net.weight.copy_(torch.zeros(4, 4))),
    "part of a parameter": _without_gradient(lambda net: net.weight[0].fill_(7)),
    "parameter detach": lambda net, _: net.linear.weight.detach().mul_(2),
    "view of a parameter": lambda net, _: net.view[0].fill_(5),
    "several": _without_gradient(lambda net: torch._foreach_mul_([net.weight, net.linear.weight, net.bias], 2.0)),
    "frozen": lambda net, _: net.weight.requires_grad_(requires_grad=False),
    "half": _converts,
    "buffer": lambda net, _: net.bias.mul_(2),
    "count": lambda net, _: net.count.add_(1),
    "set of names": lambda net, _: net._non_persistent_buffers_set.add("bias"),
    "batch norm": lambda net, x: net.norm(x),
    "spectral norm": lambda net, x: net.spectral(x),
    "optimizer": lambda net, _: net.adam.step(),
    "error": _raises,
    "interrupt": _interrupts,
}


def _tensors(net: Any) -> Iterator[Tensor]:
    yield from (*net.parameters(), *net.buffers(), net.state, net.square, net.view, *net.states, net.named["a"])
    yield from (net.named["deep"][0]["x"], *net.queue, *net.pair, net.slots.state, _GLOBAL)
    yield from (net.cache.keys, net.cache.layers[0]["keys"])
    for states in net.adam.state.values():
        yield from states.values()


def _look(net: Any) -> list[tuple[object, ...]]:
    """Identity, looks, bits and gradient of each tensor."""
    looks: list[tuple[object, ...]] = []
    for one in _tensors(net):
        gradient = one.grad if one.is_leaf else None
        looks.append((id(one), one.shape, one.stride(), one.dtype, one.requires_grad, one.is_leaf))
        looks.append((one.tolist(), None if gradient is None else gradient.tolist()))
    cache, deep = net.cache, net.named["deep"]
    tables = [vars(cache), *cache.layers, cache.seen, *deep]
    looks.append((frozenset(net._non_persistent_buffers_set), len(net.queue), len(cache.layers), len(deep)))
    return [*looks, *[tuple((name, id(one)) for name, one in table.items()) for table in tables]]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("mode", ["fake", "meta", "cpu"])
@pytest.mark.parametrize("act", _ACTS.values(), ids=_ACTS)
def test_what_a_model_writes_is_put_back(act: Callable[[Any, Tensor], object], mode: str, *, backward: bool) -> None:
    net, x = _Net(act), torch.ones(2, 4)
    before = _look(net)
    memory = net.weight.untyped_storage().data_ptr()
    for _ in range(2):
        with suppress(KeyboardInterrupt):
            capture(net, x, mode, backward=backward)
    assert _look(net) == before
    assert x.tolist() == torch.ones(2, 4).tolist()
    net.view.fill_(3)
    if act is not _ACTS["parameter other data"] or net.weight.untyped_storage().data_ptr() == memory:
        assert set(net.weight.flatten().tolist()) == {3.0}  # the view still is one


class _Replaces(nn.Module):
    """Puts other tensors in the place of those of an object, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = _State()
        self.cache.keys, self.cache.layers[0]["keys"] = torch.ones(1000), torch.ones(1000)

    def forward(self, x: Tensor) -> Tensor:
        self.cache.keys = self.cache.keys + 1
        self.cache.layers[0]["keys"] = self.cache.layers[0]["keys"] + 1
        return x + self.cache.keys.sum()


@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_what_an_object_of_the_model_lets_go_of_is_not_live_any_more(mode: str) -> None:
    trace = capture(_Replaces(), torch.ones(1), mode)
    assert trace.eager_memory is not None
    assert trace.eager_memory.peak_bytes == 3 * 4000 + 4  # both, a new one, and x


def test_tensors_that_two_modules_share_the_memory_of_still_do() -> None:
    net = _Net(lambda net, _: net.other.data.add_(1))
    net.other = nn.Parameter(net.weight.data)
    before = net.weight.tolist()
    capture(net, torch.ones(2, 4), "cpu")
    assert net.weight.tolist() == net.other.tolist() == before
    assert net.weight.data_ptr() == net.other.data_ptr()


def test_a_model_that_writes_nothing_has_nothing_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[object] = []
    clone = torch.UntypedStorage.clone

    def counted(memory: torch.UntypedStorage) -> torch.UntypedStorage:
        copies.append(memory)
        return clone(memory)

    monkeypatch.setattr(torch.UntypedStorage, "clone", counted)
    capture(_Net(lambda _, x: x.relu()), torch.ones(2, 4), "cpu", backward=True)
    assert not copies
    capture(_Net(lambda net, _: net.state.add_(1)), torch.ones(2, 4), "cpu")
    assert len(copies) == 1


def _settings() -> dict[str, object]:
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.get_deterministic_debug_mode(),
        "precision": torch.get_float32_matmul_precision(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "mkldnn": torch.backends.mkldnn.enabled,
        "grad": torch.is_grad_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "warnings": [*warnings.filters],
        "random": (random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state())),
    }


def _sets(_: Any, x: Tensor) -> Tensor:
    random.seed(3)
    np.random.seed(4)
    torch.manual_seed(5)
    warnings.simplefilter("error")
    torch.use_deterministic_algorithms(mode=True)
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_float32_matmul_precision("medium")
    torch.set_autocast_enabled("cpu", True)  # noqa: FBT003 - torch takes it so
    torch._C._set_mkldnn_enabled(False)  # noqa: FBT003 - torch takes it so
    torch.autograd.set_detect_anomaly(mode=True)
    torch.set_grad_enabled(mode=False)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    return x


@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_settings_of_the_process_come_back(mode: str) -> None:
    net = _Net(_sets)
    before = _settings()
    capture(net, torch.ones(2, 4), mode)
    assert _settings() == before
