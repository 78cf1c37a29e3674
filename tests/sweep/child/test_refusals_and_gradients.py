"""Calls that must be refused, and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.sweep.builders import call, mm, tensor, vector
from torchstone.backends.eager import Eager
from torchstone.backends.gradients import WithGradients
from torchstone.backends.torch_compile import AotEager
from torchstone.record.config import Configuration
from torchstone.record.value import Items
from torchstone.sweep.child import run as child
from torchstone.sweep.child.repro import source
from torchstone.sweep.vectors import payload_of


class Accepts(Eager):
    """Gives zeros for everything."""

    def compile(self, module: nn.Module, args: Any, kwargs: Any) -> Any:  # noqa: ARG002 - the protocol
        return lambda *_inputs: torch.zeros(2, 2)


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient


class WrongBackward(Eager):
    """Correct results, doubled gradients."""

    gradients = True

    def compile(self, module: nn.Module, args: Any, kwargs: Any) -> Any:  # noqa: ARG002 - the protocol
        return lambda *inputs: _Doubled.apply(module(*inputs))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> child._Opened:
    opened = child._Opened()
    monkeypatch.setattr(child, "_opened", opened)
    return opened


def payload(configuration: Configuration, **more: Any) -> dict[str, Any]:
    return {**payload_of(vector(configuration, refused="RuntimeError: seen")), "backend": "eager", **more}


MISMATCH = call("aten.mm.default", self_=tensor(2, 3), mat2=tensor(4, 5))


def test_a_backend_that_refuses_what_eager_refuses_passes(opened: child._Opened) -> None:
    opened.backend = AotEager()

    assert child.run_vector(payload(MISMATCH))["outcome"] == "passed"


def test_a_backend_that_accepts_what_eager_refuses_is_wrong(opened: child._Opened) -> None:
    opened.backend = Accepts()

    answer = child.run_vector(payload(MISMATCH))

    assert answer["outcome"] == "wrong"
    assert answer["detail"].startswith("gives a result where eager PyTorch refuses the call: RuntimeError: ")


def test_without_a_recorded_refusal_the_call_is_not_run(opened: child._Opened) -> None:
    opened.backend = Accepts()

    assert child.run_vector({**payload(MISMATCH), "refused": ""})["outcome"] == "not run"


def test_what_eager_has_not_implemented_another_backend_may_have(opened: child._Opened) -> None:
    opened.backend = Accepts()
    no_kernel = call("aten.mm.default", self_=tensor(2, 3, dtype="bool"), mat2=tensor(3, 5, dtype="bool"))

    answer = child.run_vector(payload(no_kernel))

    assert answer["outcome"] == "not run"
    assert "not implemented" in answer["detail"]


def test_a_call_that_eager_accepts_now_is_judged_by_its_values(opened: child._Opened) -> None:
    opened.backend = AotEager()

    assert child.run_vector(payload(mm()))["outcome"] == "passed"


def test_gradients_are_judged_where_there_are_some(opened: child._Opened) -> None:
    opened.backend = WrongBackward()
    tanh = call("aten.tanh.default", self_=tensor(3, 4))

    assert child.run_vector(payload(tanh))["outcome"] == "passed"
    answer = child.run_vector(payload(tanh, backward=True))

    assert answer["outcome"] == "wrong"
    assert answer["verdict"]["gradcheck"] is True
    assert [leaf["path"] for leaf in answer["verdict"]["leaves"] if not leaf["passed"]] == ["gradients.input 0"]


@pytest.mark.parametrize(
    "configuration",
    [
        mm(),
        call("aten.relu_.default", self_=tensor(3, 4)),
        call("aten.topk.default", self_=tensor(3, 4), k=2, dim=-1, largest=True, sorted=True),
        call("aten.split.Tensor", self_=tensor(4), split_size=2, dim=0),
        call(
            "aten.native_layer_norm.default",
            input=tensor(3, 4),
            normalized_shape=Items(kind="list", items=(4,)),
            weight=None,
            bias=None,
            eps=1e-5,
        ),
        call("aten.argmax.default", self_=tensor(3, 4), dim=None, keepdim=False),
        call("aten.gt.Scalar", self_=tensor(3, 4), other=0),
        call("aten.mul.Tensor", self_=tensor(8, 8, dtype="bfloat16"), other=tensor(8, dtype="bfloat16")),
        call("aten.sqrt.default", self_=tensor(3, 4)),  # NaN for half of the values
    ],
)
def test_correct_gradients_pass(opened: child._Opened, configuration: Configuration) -> None:
    opened.backend = AotEager()

    answer = child.run_vector(payload(configuration, backward=True))

    assert (answer["outcome"], answer["detail"]) == ("passed", "")


def test_gradients_that_finite_differences_do_not_confirm_are_not_compared(
    opened: child._Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.backend = WrongBackward()
    monkeypatch.setattr(torch.autograd, "gradcheck", lambda *_args, **_kwargs: False)

    answer = child.run_vector(payload(call("aten.tanh.default", self_=tensor(3, 4)), backward=True))

    assert answer["outcome"] == "not run"
    assert "finite differences" in answer["detail"]


def test_the_script_of_gradients_needs_torch_alone(capsys: pytest.CaptureFixture[str]) -> None:
    text = source({**payload(mm(), backward=True), "title": "mm", "options": {}})

    assert "torchstone" not in text
    scope: dict[str, Any] = {"__name__": "script"}
    exec(compile(text, "script.py", "exec"), scope)  # noqa: S102 - the script that is under test
    assert scope["main"]() == 0
    assert capsys.readouterr().out.count("ok") == 3  # the result and two gradients


def test_the_script_of_a_refusal_says_that_both_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, Any] = {"__name__": "script"}
    exec(compile(source({**payload(MISMATCH), "title": "mm"}), "script.py", "exec"), scope)  # noqa: S102 - as above

    assert scope["main"]() == 0
    assert "both refuse the call" in capsys.readouterr().out


def test_a_module_with_gradients_gives_both() -> None:
    given = WithGradients(nn.Tanh())(torch.ones(2))

    assert set(given) == {"outputs", "gradients"}
