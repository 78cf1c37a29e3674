"""Results made again from recipes: the records are those of a process that computes every shape anew."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as everywhere
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from torchstone.capture import capture, tables
from torchstone.record.codec import encode
from torchstone.record.trace import Trace

Body = Callable[["_Net", Tensor], Any]


class _Net(nn.Module):
    def __init__(self, body: "Body") -> None:
        super().__init__()
        self.body: Body = body
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Tensor) -> Any:
        return self.body(self, x)


def _changes_in_place(net: _Net, x: Tensor) -> Any:
    y = x @ net.weight
    y.relu_().mul_(2).add_(y)
    y[:, 0] = 3
    y[1:3] += net.seen
    net.seen.add_(1)
    return y.t_(), y.unsqueeze_(0)


def _views_of_views(net: _Net, x: Tensor) -> Any:
    y = x @ net.weight
    part = y[2:10].t()[1:3].unsqueeze(1).expand(2, 3, 8).transpose(0, 2)
    last = y.view(300, 2, 8).permute(2, 0, 1)[..., 0]
    last.add_(1)
    y.narrow(0, 4, 5).select(1, 2).zero_()
    return part.reshape(-1), last, y.as_strided((3, 4), (1, 2), 5), y.split([1, 7], 1), y.unbind(1), y[:, 3:][:, ::2]


def _gives_what_it_was_given(net: _Net, x: Tensor) -> Any:
    y = x @ net.weight
    return y, y, y.view(-1), y.detach(), y.contiguous(), y.to(torch.float32), torch.cat([y, y]), y + y, y.mul_(y)


def _writes_to_out(net: _Net, x: Tensor) -> Any:
    made, grown = torch.empty(600, 8), torch.empty(0)
    same = torch.add(torch.mm(x, net.weight, out=made), 1, out=made)
    return same, torch.mul(made, made, out=grown), made


def _signs_and_phases(net: _Net, x: Tensor) -> Any:
    spectrum = torch.fft.fft(x @ net.weight)
    negative = spectrum.conj().imag  # a bit of the tensor says that its values are negative
    return negative.t(), negative[1:], negative.view(-1) if negative.is_contiguous() else negative, spectrum.real.t()


def _numbers_that_are_equal(net: _Net, x: Tensor) -> Any:
    y = x @ net.weight
    return y + 1, y + 1.0, y + True, y * 0.0, y * -0.0, y * float("nan"), y.int() + 1, y.int() * 1.5, y.half() + 1


def _lies_in_other_ways(net: _Net, x: Tensor) -> Any:
    image = x.flatten()[:1800].view(2, 3, 15, 20)
    last = image.to(memory_format=torch.channels_last)
    outs = [net.norm(net.conv(one)) for one in (image, last, image.transpose(2, 3), image[:, :, ::2], image[:1])]
    return outs, [F.relu(one) + one for one in outs], F.max_pool2d(outs[0], 2), F.avg_pool2d(outs[1], 3, ceil_mode=True)


def _inference(net: _Net, x: Tensor) -> Any:
    with torch.inference_mode():
        y = net.layers[0](x)
    return y.view(-1), y.t(), net.layers[1](y)


def _other_modes(net: _Net, x: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = net.layers[0](x)
    torch.set_default_dtype(torch.float64)
    try:
        z = x.int() * 1.5
    finally:
        torch.set_default_dtype(torch.float32)
    return y, z, x.int() * 1.5, torch.rand_like(y), F.dropout(y, 0.5, training=True), y[torch.tensor([1, 2])]


def _nothing_in_it(net: _Net, x: Tensor) -> Any:
    none = (x @ net.weight)[:0]
    return none @ net.weight, F.relu(none), torch.cat([none, none]), none.view(8, 0), none.t(), none.expand(2, 0, 8)


BODIES = (
    _changes_in_place, _views_of_views, _gives_what_it_was_given, _writes_to_out, _signs_and_phases,
    _numbers_that_are_equal, _lies_in_other_ways, _inference, _other_modes, _nothing_in_it,
)  # fmt: skip


@pytest.fixture
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every capture begins without descriptions, and no result is made from a recipe."""

    class Nothing(dict[int, Any]):
        def __setitem__(self, key: int, value: Any) -> None:
            pass

    def none_known(*, stand_in: bool) -> tables.Descriptions:
        fresh = tables.Descriptions(stand_in=stand_in)
        fresh.results = Nothing()
        return fresh

    monkeypatch.setattr(tables, "known_descriptions", none_known)


def _record(trace: Trace) -> bytes:
    provenance = msgspec.structs.replace(trace.provenance, created="")
    return encode(msgspec.structs.replace(trace, provenance=provenance))


def _captured(body: Body, *, reuse: bool, backward: bool) -> bytes:
    torch.manual_seed(0)
    trace = capture(_Net(body), torch.randn(600, 8), "fake", reuse=reuse, backward=backward)
    assert trace.failure is None
    return _record(trace)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("reuse", [True, False])
def test_a_result_made_again_leaves_the_same_record(body: Body, *, reuse: bool, request: pytest.FixtureRequest) -> None:
    first = _captured(body, reuse=reuse, backward=False)
    second = _captured(body, reuse=reuse, backward=False)  # everything that can be known is known now

    request.getfixturevalue("_forgetful")
    assert _captured(body, reuse=reuse, backward=False) == first == second


def test_a_backward_pass_leaves_the_same_record(request: pytest.FixtureRequest) -> None:
    def body(net: _Net, x: Tensor) -> Any:
        for layer in net.layers:
            x = torch.tanh(layer(x)) + F.relu(x.t()).t()
        return x.view(-1).sum(), net.norm(net.conv(x[:450].view(2, 3, 20, 30)))

    known = [_captured(body, reuse=False, backward=True) for _ in range(2)]
    request.getfixturevalue("_forgetful")
    assert [_captured(body, reuse=False, backward=True)] * 2 == known


def _changes_its_looks(net: _Net, x: Tensor) -> Any:
    """Every way in which a tensor object gets another shape, type or need of a gradient."""
    y = x @ net.weight
    first = y + 1
    y.data = y.data.half()
    second = y + 1
    y.data = y.data.t()
    third = y + 1
    third.requires_grad_()
    fourth = third.detach().clone().t_().relu().unsqueeze_(0) + 1
    grown = first[:0].clone()
    torch.mul(first, first, out=grown)
    return second, fourth, grown + 1, third * 2


def test_a_tensor_that_gets_other_looks_is_described_anew() -> None:
    net, x = _Net(_changes_its_looks), torch.randn(600, 8)

    fake, real = (capture(net, x, mode) for mode in ("fake", "cpu"))

    def looks(trace: Trace) -> list[Any]:
        return [(op.signature.op, op.signature.input_specs, op.signature.output_specs) for op in trace.ops]

    assert fake.failure is None
    assert looks(fake) == looks(real)


def test_data_can_be_assigned_as_before_when_a_capture_is_over() -> None:
    net = _Net(_changes_its_looks)

    capture(net, torch.randn(600, 8), "fake")

    assert "data" not in vars(FakeTensor)


def test_descriptions_are_given_up_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    before = tables.known_descriptions(stand_in=True)
    before.spec_number(torch.zeros(3))

    assert tables.known_descriptions(stand_in=True) is before
    monkeypatch.setattr(tables, "_MOST_KEPT", 0)
    assert tables.known_descriptions(stand_in=True) is not before
